//! Structures of the ABI of rdma-core 44 on 64-bit machines: those of `rdma_cma.h`, and what the connection manager reads or fills of
//! those of `verbs.h`. Names of fields are those of the manual. Sizes and offsets were measured with the headers of Debian 12; the
//! tests below hold them.

pub(crate) use rnic_stand_in::abi::*;
use rnic_stand_in::structures;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

structures! {
    pub(crate),
    /// `rdma_cm_id`.
    Id {
        verbs: *mut Context,
        channel: *mut Channel,
        context: *mut c_void,
        qp: *mut QueuePair,
        route: Route,
        ps: c_int,
        port_num: u8,
        event: *mut Event,
        send_cq_channel: *mut c_void,
        send_cq: *mut c_void,
        recv_cq_channel: *mut c_void,
        recv_cq: *mut c_void,
        srq: *mut SharedReceiveQueue,
        pd: *mut c_void,
        qp_type: c_int,
    }
    /// `rdma_route`.
    Route {
        addr: Addresses,
        path_rec: *mut PathRecord,
        num_paths: c_int,
    }
    /// `rdma_addr`.
    Addresses {
        src: SocketAddress,
        dst: SocketAddress,
        ib: IbAddress,
    }
    /// `sockaddr_storage`.
    SocketAddress {
        words: [u64; 16],
    }
    /// `rdma_ib_addr`. The P_Key is in wire order.
    IbAddress {
        sgid: Gid,
        dgid: Gid,
        pkey: u16,
    }
    /// `ibv_sa_path_rec`.
    PathRecord {
        dgid: Gid,
        sgid: Gid,
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        flow_label: u32,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int,
        numb_path: u8,
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
    /// `rdma_event_channel`.
    Channel {
        fd: c_int,
    }
    /// `rdma_conn_param`.
    ConnectionParameters {
        private_data: *const u8,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }
    /// `rdma_cm_event`, with the longer of the two structures of parameters.
    Event {
        id: *mut Id,
        listen_id: *mut Id,
        event: c_int,
        status: c_int,
        conn: ConnectionParameters,
        rest: [u64; 4],
    }
    /// `rdma_addrinfo`.
    AddressInfo {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: u32,
        ai_dst_len: u32,
        ai_src_addr: *mut libc::sockaddr,
        ai_dst_addr: *mut libc::sockaddr,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: usize,
        ai_route: *mut c_void,
        ai_connect_len: usize,
        ai_connect: *mut c_void,
        ai_next: *mut AddressInfo,
    }
    /// `ibv_context`, as far as it is read here.
    Context {
        device: *mut c_void,
    }
    /// `ibv_qp`, as far as it is read here.
    QueuePair {
        context: *mut Context,
        qp_context: *mut c_void,
        pd: *mut c_void,
        send_cq: *mut c_void,
        recv_cq: *mut c_void,
        srq: *mut SharedReceiveQueue,
        handle: u32,
        qp_num: u32,
    }
    /// `ibv_srq`, as far as it is read here.
    SharedReceiveQueue {
        context: *mut Context,
        srq_context: *mut c_void,
        pd: *mut c_void,
    }
    /// `ibv_qp_init_attr`.
    QueuePairInit {
        qp_context: *mut c_void,
        send_cq: *mut c_void,
        recv_cq: *mut c_void,
        srq: *mut SharedReceiveQueue,
        cap: QueuePairCapacity,
        qp_type: c_int,
        sq_sig_all: c_int,
    }
    /// `ibv_qp_init_attr_ex`. It begins with the fields of [`QueuePairInit`], whose last four bytes it has another use for.
    QueuePairInitExtended {
        qp_context: *mut c_void,
        send_cq: *mut c_void,
        recv_cq: *mut c_void,
        srq: *mut SharedReceiveQueue,
        cap: QueuePairCapacity,
        qp_type: c_int,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut c_void,
        rest: [u64; 8],
    }
    /// `ibv_srq_init_attr`.
    SharedReceiveQueueInit {
        srq_context: *mut c_void,
        attributes: [u32; 3],
    }
    /// `ibv_srq_init_attr_ex`. It begins with the fields of [`SharedReceiveQueueInit`], as above.
    SharedReceiveQueueInitExtended {
        srq_context: *mut c_void,
        attributes: [u32; 3],
        comp_mask: u32,
        srq_type: c_int,
        pd: *mut c_void,
        rest: [u64; 3],
    }
}

impl SocketAddress {
    /// No address: the family is `AF_UNSPEC`.
    pub(crate) const NONE: Self = Self { words: [0; 16] };
}

impl Id {
    /// An identifier of nothing yet.
    pub(crate) fn new(channel: *mut Channel, context: *mut c_void, ps: c_int, qp_type: c_int) -> Self {
        let none = Gid { words: [0; 2] };
        let ib = IbAddress { sgid: none, dgid: none, pkey: 0 };
        let addr = Addresses { src: SocketAddress::NONE, dst: SocketAddress::NONE, ib };
        Self {
            verbs: null_mut(),
            channel,
            context,
            qp: null_mut(),
            route: Route { addr, path_rec: null_mut(), num_paths: 0 },
            ps,
            port_num: 0,
            event: null_mut(),
            send_cq_channel: null_mut(),
            send_cq: null_mut(),
            recv_cq_channel: null_mut(),
            recv_cq: null_mut(),
            srq: null_mut(),
            pd: null_mut(),
            qp_type,
        }
    }
}

/// `RDMA_PS_TCP`, the only port space whose queue pairs are reliable connected ones with addresses of IP.
pub(crate) const PORT_SPACE_TCP: c_int = 0x0106;
/// `IBV_QPT_RC`.
pub(crate) const RELIABLE_CONNECTED: c_int = 2;
/// `IBV_QP_INIT_ATTR_PD`.
pub(crate) const INIT_HAS_DOMAIN: u32 = 1;
/// `IBV_SRQ_INIT_ATTR_TYPE` and `IBV_SRQ_INIT_ATTR_PD`.
pub(crate) const SRQ_INIT_HAS_TYPE: u32 = 1;
pub(crate) const SRQ_INIT_HAS_DOMAIN: u32 = 2;

/// Offset of the pointer to `create_qp_ex` from a context, before which it stands.
pub(crate) const CREATE_QP_EX: isize = 264 - 320;

/// `IBV_QPS_*`.
pub(crate) mod state {
    use std::ffi::c_int;
    pub(crate) const INIT: c_int = 1;
    pub(crate) const RTR: c_int = 2;
    pub(crate) const RTS: c_int = 3;
    pub(crate) const ERROR: c_int = 6;
}

/// `IBV_QP_*`, the attributes of a mask.
pub(crate) mod attribute {
    pub(crate) const STATE: u32 = 1;
    pub(crate) const ACCESS_FLAGS: u32 = 1 << 3;
    pub(crate) const PKEY_INDEX: u32 = 1 << 4;
    pub(crate) const PORT: u32 = 1 << 5;
    pub(crate) const ADDRESS_VECTOR: u32 = 1 << 7;
    pub(crate) const PATH_MTU: u32 = 1 << 8;
    pub(crate) const TIMEOUT: u32 = 1 << 9;
    pub(crate) const RETRY_COUNT: u32 = 1 << 10;
    pub(crate) const RNR_RETRY: u32 = 1 << 11;
    pub(crate) const RQ_PSN: u32 = 1 << 12;
    pub(crate) const MAX_RD_ATOMIC: u32 = 1 << 13;
    pub(crate) const MIN_RNR_TIMER: u32 = 1 << 15;
    pub(crate) const SQ_PSN: u32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub(crate) const DESTINATION_QPN: u32 = 1 << 20;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_stand_in::pin;

    #[test]
    fn identifiers_and_events_lie_as_the_headers_have_them() {
        pin!(Id, 416; verbs 0, channel 8, context 16, qp 24, route 32, ps 344, port_num 348, event 352,
            send_cq_channel 360, send_cq 368, recv_cq_channel 376, recv_cq 384, srq 392, pd 400, qp_type 408);
        pin!(Route, 312; addr 0, path_rec 296, num_paths 304);
        pin!(Addresses, 296; src 0, dst 128, ib 256);
        pin!(IbAddress, 40; sgid 0, dgid 16, pkey 32);
        pin!(PathRecord, 64; dgid 0, sgid 16, dlid 32, raw_traffic 36, flow_label 40, hop_limit 44, reversible 48,
            numb_path 52, pkey 54, mtu 58, rate 60, packet_life_time 62, preference 63);
        pin!(Channel, 4; fd 0);
        pin!(ConnectionParameters, 24; private_data 0, private_data_len 8, responder_resources 9,
            initiator_depth 10, flow_control 11, retry_count 12, rnr_retry_count 13, srq 14, qp_num 16);
        pin!(Event, 80; id 0, listen_id 8, event 16, status 20, conn 24);
        pin!(AddressInfo, 96; ai_flags 0, ai_family 4, ai_qp_type 8, ai_port_space 12, ai_src_len 16,
            ai_dst_len 20, ai_src_addr 24, ai_dst_addr 32, ai_src_canonname 40, ai_dst_canonname 48,
            ai_route_len 56, ai_route 64, ai_connect_len 72, ai_connect 80, ai_next 88);
        assert_eq!(size_of::<SocketAddress>(), size_of::<libc::sockaddr_storage>());
    }

    #[test]
    fn objects_of_the_verbs_lie_as_the_headers_have_them() {
        pin!(QueuePair, 56; context 0, qp_context 8, pd 16, send_cq 24, recv_cq 32, srq 40, qp_num 52);
        pin!(SharedReceiveQueue, 24; context 0, pd 16);
        pin!(QueuePairInit, 64; qp_context 0, send_cq 8, recv_cq 16, srq 24, cap 32, qp_type 52, sq_sig_all 56);
        pin!(QueuePairInitExtended, 136; sq_sig_all 56, comp_mask 60, pd 64);
        pin!(SharedReceiveQueueInit, 24; srq_context 0);
        pin!(SharedReceiveQueueInitExtended, 64; comp_mask 20, srq_type 24, pd 32);
    }
}
