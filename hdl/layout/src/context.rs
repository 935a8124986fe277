#![doc = include_str!("manual/contexts.md")]

use crate::field::record;
use crate::state::{PathMtu, Service};

record! {
    /// Path of a queue pair: what commands set and packets only read. Peer, address, PMTU, remote access rights, timer codes,
    /// and the base and size of its rings.
    pub struct PathRecord: 576 bits by Control, "design decision 6" {
        /// QPN of this queue pair, all 24 bits. Arriving packets carry it as destination QP; all bits are compared.
        local_qp: u32 = 0..24, "protocol 1.3";
        /// QPN of the peer, the destination QP of transmitted packets.
        destination_qp: u32 = 24..48, "protocol 1.3";
        /// Transport service.
        service: Service = 48..50, "protocol 1.4";
        /// PMTU.
        path_mtu: PathMtu = 50..53, "protocol 2.2";
        /// 1: IPv6. 0: IPv4.
        is_ipv6: bool = 53..54, "protocol 1.2";
        /// Transmitted frames carry an 802.1Q tag with `vlan_control`.
        vlan_present: bool = 54..55, "protocol 1.2";
        /// Receive WQEs are taken from `shared_receive_queue`, not from a ring of the queue pair.
        shared_receive: bool = 55..56, "protocol 4.5";
        /// Every send WQE completes with a CQE, whether it is signalled or not.
        signal_all: bool = 56..57, "protocol 2.11";
        /// The peer may write (RDMA WRITE).
        remote_write: bool = 57..58, "protocol 3.6 row 5";
        /// The peer may read (RDMA READ).
        remote_read: bool = 58..59, "protocol 3.6 row 5";
        /// The peer may do atomics.
        remote_atomic: bool = 59..60, "protocol 3.6 row 5";
        /// Generation of the queue pair. Work and messages of another generation are dropped.
        generation: u8 = 60..68, "design decision 8";
        /// Address of the peer as a GID, the first byte on the wire being the most significant. Packets of RC and UC are
        /// accepted from this address only.
        destination_address: u128 = 68..196, "protocol 4.2";
        /// MAC address of the next hop, the first byte on the wire being the most significant.
        destination_mac: u64 = 196..244, "protocol 4.2";
        /// Tag control information of the 802.1Q tag: PCP, DEI, VID.
        vlan_control: u16 = 244..260, "protocol 1.2";
        /// IPv4 type of service, or IPv6 traffic class.
        traffic_class: u8 = 260..268, "protocol 4.2";
        /// IPv4 time to live, or IPv6 hop limit.
        hop_limit: u8 = 268..276, "protocol 4.2";
        /// IPv6 flow label.
        flow_label: u32 = 276..296, "protocol 1.2";
        /// UDP source port.
        source_port: u16 = 296..312, "protocol 1.2";
        /// Index of the source address in the registers `source_address_*`.
        source_address_index: u8 = 312..316, "protocol 4.2";
        /// P_Key.
        partition_key: u16 = 316..332, "protocol 4.3";
        /// Q_Key of a datagram queue pair.
        queue_key: u32 = 332..364, "protocol 4.3";
        /// Protection domain.
        domain: u32 = 364..388, "protocol 4.6";
        /// Acknowledgement timeout: 4.096 us x 2^n. 0 disables the timer.
        timeout: u8 = 388..393, "protocol 2.6";
        /// Retries after a timeout or a NAK 0x60.
        retry_count: u8 = 393..396, "protocol 2.6";
        /// Retries after an RNR NAK. 7: no limit.
        rnr_retry: u8 = 396..399, "protocol 2.7";
        /// Timer code of the RNR NAKs that this queue pair sends.
        min_rnr_timer: u8 = 399..404, "protocol 1.6";
        /// READs and atomics outstanding as requester.
        read_atomic: u8 = 404..409, "protocol 2.3", allowed 0..=16;
        /// READs and atomics accepted and not answered as responder.
        destination_read_atomic: u8 = 409..414, "protocol 3.5", allowed 0..=16;
        /// Number of the completion queue of the send queue.
        send_completion_queue: u16 = 414..430, "protocol 4.4";
        /// Number of the completion queue of the receive queue.
        receive_completion_queue: u16 = 430..446, "protocol 4.4";
        /// Number of the SRQ, if `shared_receive` is set.
        shared_receive_queue: u16 = 446..462, "protocol 4.5";
        /// Device address of the send ring.
        send_base_page: u64 = 462..514, "design 3.2", unit "4096 bytes";
        /// Slots of the send ring, log2.
        send_slots_log2: u8 = 514..518, "design 3.2";
        /// Device address of the receive ring.
        receive_base_page: u64 = 518..570, "design 3.2", unit "4096 bytes";
        /// WQEs of the receive ring, log2.
        receive_wqes_log2: u8 = 570..574, "design 3.2";
        /// SQD raises `send_queue_drained` once the send queue has drained.
        drain_notify: bool = 574..575, "protocol 3.10";
        /// Local write permission. Kept for queries only: scattering is checked against the L_Keys of the SGEs.
        local_write: bool = 575..576, "protocol 4.6";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Writer;

    /// Every field is written by control, on behalf of a command; the stages only read.
    #[test]
    fn the_path_has_one_writer() {
        assert!(PathRecord::RECORD.fields.iter().all(|field| field.writer == Writer::Control));
    }

    /// A fresh queue pair is all zeros, so that a table is cleared by writing zeros.
    #[test]
    fn the_path_resets_to_zero() {
        assert!(PathRecord::RECORD.fields.iter().all(|field| field.reset == 0));
    }
}
