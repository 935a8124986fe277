//! Path of a queue pair: what commands set and packets only read.
use rnic_kernel::prelude::*;

/// Mirror of `rnic_layout::context::PathRecord`, in its order and widths. Every stage keeps the fields that it
/// needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Path {
    /// QPN of this queue pair, all 24 bits.
    pub local_qp: Bits<24>,
    /// QPN of the peer.
    pub destination_qp: Bits<24>,
    /// Transport service: a `rnic_layout::state::Service`.
    pub service: Bits<2>,
    /// PMTU, 128 << n bytes: a `rnic_layout::state::PathMtu`.
    pub path_mtu: Bits<3>,
    /// 1: IPv6. 0: IPv4.
    pub is_ipv6: Bit,
    /// Transmitted frames carry an 802.1Q tag.
    pub vlan_present: Bit,
    /// Receive WQEs are taken from the SRQ.
    pub shared_receive: Bit,
    /// Every send WQE is treated as signalled.
    pub signal_all: Bit,
    /// The peer may write (RDMA WRITE).
    pub remote_write: Bit,
    /// The peer may read (RDMA READ).
    pub remote_read: Bit,
    /// The peer may do atomics.
    pub remote_atomic: Bit,
    /// Generation of the queue pair.
    pub generation: Bits<8>,
    /// Address of the peer as a GID, first byte most significant.
    pub destination_address: Bits<128>,
    /// MAC address of the next hop, first byte most significant.
    pub destination_mac: Bits<48>,
    /// Tag control information of the 802.1Q tag: PCP, DEI, VID.
    pub vlan_control: Bits<16>,
    /// IPv4 type of service, or IPv6 traffic class.
    pub traffic_class: Bits<8>,
    /// IPv4 time to live, or IPv6 hop limit.
    pub hop_limit: Bits<8>,
    /// IPv6 flow label.
    pub flow_label: Bits<20>,
    /// UDP source port.
    pub source_port: Bits<16>,
    /// Index of the source address in the table of source addresses.
    pub source_address_index: Bits<4>,
    /// Partition key (P_Key).
    pub partition_key: Bits<16>,
    /// Q_Key of a datagram queue pair.
    pub queue_key: Bits<32>,
    /// Protection domain.
    pub domain: Bits<24>,
    /// Acknowledgement timeout: 4.096 us x 2^n. 0 disables the timer.
    pub timeout: Bits<5>,
    /// Retries after a timeout or a NAK 0x60.
    pub retry_count: Bits<3>,
    /// Retries after an RNR NAK. 7: no limit.
    pub rnr_retry: Bits<3>,
    /// Timer code of the RNR NAKs that this queue pair sends.
    pub min_rnr_timer: Bits<5>,
    /// READs and atomics outstanding as requester, 0 to 16.
    pub read_atomic: Bits<5>,
    /// READs and atomics accepted and not answered as responder, 0 to 16.
    pub destination_read_atomic: Bits<5>,
    /// Number of the completion queue of the send queue.
    pub send_completion_queue: Bits<16>,
    /// Number of the completion queue of the receive queue.
    pub receive_completion_queue: Bits<16>,
    /// Number of the SRQ, if `shared_receive` is set.
    pub shared_receive_queue: Bits<16>,
    /// Device address of the send ring, in pages of 4,096 bytes.
    pub send_base_page: Bits<52>,
    /// log2 of the slots of the send ring.
    pub send_slots_log2: Bits<4>,
    /// Device address of the receive ring, in pages of 4,096 bytes.
    pub receive_base_page: Bits<52>,
    /// log2 of the WQEs of the receive ring.
    pub receive_wqes_log2: Bits<4>,
    /// SQD raises an event once the send queue has drained.
    pub drain_notify: Bit,
    /// Local write permission, kept for queries.
    pub local_write: Bit,
}

/// log2 of the bytes of PMTU code 0, which does not exist; each further code doubles it.
pub const PMTU_BASE_BITS: usize = 7;

/// Gives the bytes of a PMTU by its code: a `rnic_layout::state::PathMtu` other than `Unset`.
#[kernel]
pub fn pmtu_bytes(code: Bits<3>) -> Bits<13> {
    bits::<13>(1 << PMTU_BASE_BITS) << code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::fields_of;
    use rnic_layout::context::PathRecord;
    use rnic_layout::path::Pmtu;

    #[test]
    fn every_pmtu_has_its_bytes() {
        for pmtu in Pmtu::ALL {
            assert_eq!(pmtu_bytes(bits(pmtu.code().into())), bits(pmtu.bytes().into()));
        }
        assert_eq!(pmtu_bytes(bits(1)), bits(256));
    }

    #[test]
    fn the_mirror_has_the_names_order_and_widths_of_the_table() {
        let table =
            PathRecord::RECORD.fields.iter().map(|field| (field.name.to_string(), field.width as usize));
        assert_eq!(fields_of::<Path>(), table.collect::<Vec<_>>());
    }
}
