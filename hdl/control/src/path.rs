//! Path record: the bits of the store as the fields that the stages use.
use rnic_kernel::prelude::*;
use rnic_layout::context::PathRecord;
use rnic_messages::path::Path;

/// Bits of a path record.
pub const PATH_BITS: usize = PathRecord::RECORD.bits as usize;

/// Offsets of fields, in the form in which kernels can use them.
mod at {
    use rnic_layout::context::PathRecord;

    const fn offset(name: &str) -> usize {
        PathRecord::RECORD.field(name).offset as usize
    }

    pub(super) const LOCAL_QP: usize = offset("local_qp");
    pub(super) const DESTINATION_QP: usize = offset("destination_qp");
    pub(super) const SERVICE: usize = offset("service");
    pub(super) const PATH_MTU: usize = offset("path_mtu");
    pub(super) const IS_IPV6: usize = offset("is_ipv6");
    pub(super) const VLAN_PRESENT: usize = offset("vlan_present");
    pub(super) const SHARED_RECEIVE: usize = offset("shared_receive");
    pub(super) const SIGNAL_ALL: usize = offset("signal_all");
    pub(super) const REMOTE_WRITE: usize = offset("remote_write");
    pub(super) const REMOTE_READ: usize = offset("remote_read");
    pub(super) const REMOTE_ATOMIC: usize = offset("remote_atomic");
    pub(super) const GENERATION: usize = offset("generation");
    pub(super) const DESTINATION_ADDRESS: usize = offset("destination_address");
    pub(super) const DESTINATION_MAC: usize = offset("destination_mac");
    pub(super) const VLAN_CONTROL: usize = offset("vlan_control");
    pub(super) const TRAFFIC_CLASS: usize = offset("traffic_class");
    pub(super) const HOP_LIMIT: usize = offset("hop_limit");
    pub(super) const FLOW_LABEL: usize = offset("flow_label");
    pub(super) const SOURCE_PORT: usize = offset("source_port");
    pub(super) const SOURCE_ADDRESS_INDEX: usize = offset("source_address_index");
    pub(super) const PARTITION_KEY: usize = offset("partition_key");
    pub(super) const QUEUE_KEY: usize = offset("queue_key");
    pub(super) const DOMAIN: usize = offset("domain");
    pub(super) const TIMEOUT: usize = offset("timeout");
    pub(super) const RETRY_COUNT: usize = offset("retry_count");
    pub(super) const RNR_RETRY: usize = offset("rnr_retry");
    pub(super) const MIN_RNR_TIMER: usize = offset("min_rnr_timer");
    pub(super) const READ_ATOMIC: usize = offset("read_atomic");
    pub(super) const DESTINATION_READ_ATOMIC: usize = offset("destination_read_atomic");
    pub(super) const SEND_COMPLETION_QUEUE: usize = offset("send_completion_queue");
    pub(super) const RECEIVE_COMPLETION_QUEUE: usize = offset("receive_completion_queue");
    pub(super) const SHARED_RECEIVE_QUEUE: usize = offset("shared_receive_queue");
    pub(super) const SEND_BASE_PAGE: usize = offset("send_base_page");
    pub(super) const SEND_SLOTS_LOG2: usize = offset("send_slots_log2");
    pub(super) const RECEIVE_BASE_PAGE: usize = offset("receive_base_page");
    pub(super) const RECEIVE_WQES_LOG2: usize = offset("receive_wqes_log2");
    pub(super) const DRAIN_NOTIFY: usize = offset("drain_notify");
    pub(super) const LOCAL_WRITE: usize = offset("local_write");
}

/// Gives the fields of a path record.
#[kernel]
pub fn path_of(record: Bits<PATH_BITS>) -> Path {
    Path {
        local_qp: record.get_bits::<24>(at::LOCAL_QP),
        destination_qp: record.get_bits::<24>(at::DESTINATION_QP),
        service: record.get_bits::<2>(at::SERVICE),
        path_mtu: record.get_bits::<3>(at::PATH_MTU),
        is_ipv6: record.get_bit(at::IS_IPV6),
        vlan_present: record.get_bit(at::VLAN_PRESENT),
        shared_receive: record.get_bit(at::SHARED_RECEIVE),
        signal_all: record.get_bit(at::SIGNAL_ALL),
        remote_write: record.get_bit(at::REMOTE_WRITE),
        remote_read: record.get_bit(at::REMOTE_READ),
        remote_atomic: record.get_bit(at::REMOTE_ATOMIC),
        generation: record.get_bits::<8>(at::GENERATION),
        destination_address: record.get_bits::<128>(at::DESTINATION_ADDRESS),
        destination_mac: record.get_bits::<48>(at::DESTINATION_MAC),
        vlan_control: record.get_bits::<16>(at::VLAN_CONTROL),
        traffic_class: record.get_bits::<8>(at::TRAFFIC_CLASS),
        hop_limit: record.get_bits::<8>(at::HOP_LIMIT),
        flow_label: record.get_bits::<20>(at::FLOW_LABEL),
        source_port: record.get_bits::<16>(at::SOURCE_PORT),
        source_address_index: record.get_bits::<4>(at::SOURCE_ADDRESS_INDEX),
        partition_key: record.get_bits::<16>(at::PARTITION_KEY),
        queue_key: record.get_bits::<32>(at::QUEUE_KEY),
        domain: record.get_bits::<24>(at::DOMAIN),
        timeout: record.get_bits::<5>(at::TIMEOUT),
        retry_count: record.get_bits::<3>(at::RETRY_COUNT),
        rnr_retry: record.get_bits::<3>(at::RNR_RETRY),
        min_rnr_timer: record.get_bits::<5>(at::MIN_RNR_TIMER),
        read_atomic: record.get_bits::<5>(at::READ_ATOMIC),
        destination_read_atomic: record.get_bits::<5>(at::DESTINATION_READ_ATOMIC),
        send_completion_queue: record.get_bits::<16>(at::SEND_COMPLETION_QUEUE),
        receive_completion_queue: record.get_bits::<16>(at::RECEIVE_COMPLETION_QUEUE),
        shared_receive_queue: record.get_bits::<16>(at::SHARED_RECEIVE_QUEUE),
        send_base_page: record.get_bits::<52>(at::SEND_BASE_PAGE),
        send_slots_log2: record.get_bits::<4>(at::SEND_SLOTS_LOG2),
        receive_base_page: record.get_bits::<52>(at::RECEIVE_BASE_PAGE),
        receive_wqes_log2: record.get_bits::<4>(at::RECEIVE_WQES_LOG2),
        drain_notify: record.get_bit(at::DRAIN_NOTIFY),
        local_write: record.get_bit(at::LOCAL_WRITE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;
    use rand::Rng;
    use rnic_blocks::bench::random;

    #[test]
    fn the_fields_lie_where_the_token_has_them() {
        let mut random = random();
        let bytes: Vec<u8> = (0..PATH_BITS / 8).map(|_| random.random()).collect();
        let record = Bits::from(BigUint::from_bytes_le(&bytes));
        assert_eq!(Bits::<PATH_BITS>::from(path_of(record)), record);
    }
}
