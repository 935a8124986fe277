//! What commands set and packets only read: the mirror of the path record.
use rnic_kernel::prelude::*;

/// Mirror of `rnic_layout::context::PathRecord`, in its order and widths. Every stage keeps the fields that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Path {
    /// The whole QPN.
    pub local_qp: Bits<24>,
    /// QPN of the peer.
    pub destination_qp: Bits<24>,
    /// A `rnic_layout::state::Service`.
    pub service: Bits<2>,
    /// A `rnic_layout::state::PathMtu`: 128 << n bytes.
    pub path_mtu: Bits<3>,
    /// IPv6 if set, else IPv4.
    pub is_ipv6: Bit,
    /// Frames carry an 802.1Q tag.
    pub vlan_present: Bit,
    /// Receives come from a shared queue.
    pub shared_receive: Bit,
    /// Every send entry counts as signalled.
    pub signal_all: Bit,
    /// The peer may write.
    pub remote_write: Bit,
    /// The peer may read.
    pub remote_read: Bit,
    /// The peer may do atomics.
    pub remote_atomic: Bit,
    /// Generation for which the record was written.
    pub generation: Bits<8>,
    /// The peer's address as a GID, first byte most significant.
    pub destination_address: Bits<128>,
    /// Ethernet address of the next hop.
    pub destination_mac: Bits<48>,
    /// Tag control information.
    pub vlan_control: Bits<16>,
    /// IPv4 type of service, or IPv6 traffic class.
    pub traffic_class: Bits<8>,
    /// IPv4 time to live, or IPv6 hop limit.
    pub hop_limit: Bits<8>,
    /// IPv6 flow label.
    pub flow_label: Bits<20>,
    /// UDP source port.
    pub source_port: Bits<16>,
    /// Entry of the table of source addresses.
    pub source_address_index: Bits<4>,
    /// P_Key.
    pub partition_key: Bits<16>,
    /// Q_Key of a datagram queue pair.
    pub queue_key: Bits<32>,
    /// Protection domain.
    pub domain: Bits<24>,
    /// Acknowledgement time-out 4.096 us x 2^n; zero for none.
    pub timeout: Bits<5>,
    /// What `retries_left` is reloaded with.
    pub retry_count: Bits<3>,
    /// What `rnr_retries_left` is reloaded with.
    pub rnr_retry: Bits<3>,
    /// Code of the delay that own RNR NAKs ask for.
    pub min_rnr_timer: Bits<5>,
    /// READs and atomics in flight as requester.
    pub read_atomic: Bits<5>,
    /// The same as responder.
    pub destination_read_atomic: Bits<5>,
    /// Completion queue of sends.
    pub send_completion_queue: Bits<16>,
    /// Completion queue of receives.
    pub receive_completion_queue: Bits<16>,
    /// Shared receive queue.
    pub shared_receive_queue: Bits<16>,
    /// Device address of the send ring, in pages of 4,096 bytes.
    pub send_base_page: Bits<52>,
    /// Its slots, as a power of two.
    pub send_slots_log2: Bits<4>,
    /// Device address of the receive ring, in pages of 4,096 bytes.
    pub receive_base_page: Bits<52>,
    /// Its entries, as a power of two.
    pub receive_wqes_log2: Bits<4>,
    /// The end of draining raises an event.
    pub drain_notify: Bit,
    /// Local write, kept for queries.
    pub local_write: Bit,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::fields_of;
    use rnic_layout::context::PathRecord;

    #[test]
    fn the_mirror_has_the_names_order_and_widths_of_the_table() {
        let table =
            PathRecord::RECORD.fields.iter().map(|field| (field.name.to_string(), field.width as usize));
        assert_eq!(fields_of::<Path>(), table.collect::<Vec<_>>());
    }
}
