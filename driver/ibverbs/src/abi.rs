//! Structures of the ABI of rdma-core 44 on 64-bit machines, beside those that the connection manager reads too. Names of fields are those of the manual. Sizes and offsets were measured
//! with the headers of Debian 12; the tests below hold them.

pub(crate) use rnic_stand_in::abi::*;
use rnic_stand_in::structures;
use std::ffi::{c_char, c_int, c_void};

/// A function of any signature, in a table of functions.
pub(crate) type Function = *const c_void;

/// `pthread_mutex_t` of the C library, which this library leaves alone.
pub(crate) type Mutex = [u64; 5];
/// `pthread_cond_t` of the C library, which this library leaves alone.
pub(crate) type Condition = [u64; 6];

structures! {
    pub(crate),
    /// `ibv_device`.
    Device {
        obsolete: [Function; 2],
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }
    /// `ibv_context`, with the table of functions that the inline functions of `verbs.h` call.
    Context {
        device: *mut Device,
        ops: [Function; 32],
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: Mutex,
        abi_compat: usize,
    }
    /// `verbs_context`: functions that were added later stand before the context.
    VerbsContext {
        functions: [Function; 39],
        bytes: usize,
        context: Context,
    }
    /// `ibv_gid_entry`.
    GidEntry {
        gid: [u8; 16],
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }
    /// `ibv_pd`.
    ProtectionDomain {
        context: *mut Context,
        handle: u32,
    }
    /// `ibv_mr`.
    Region {
        context: *mut Context,
        pd: *mut ProtectionDomain,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }
    /// `ibv_comp_channel`.
    Channel {
        context: *mut Context,
        fd: c_int,
        refcnt: c_int,
    }
    /// `ibv_cq`.
    CompletionQueue {
        context: *mut Context,
        channel: *mut Channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: Mutex,
        cond: Condition,
        comp_events_completed: u32,
        async_events_completed: u32,
    }
    /// `ibv_cq_ex`: the queue, and the completion that is read.
    ExtendedCompletionQueue {
        queue: CompletionQueue,
        comp_mask: u32,
        status: c_int,
        wr_id: u64,
        functions: [Function; 18],
    }
    /// `ibv_cq_init_attr_ex`.
    ExtendedCompletionQueueInit {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut Channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ProtectionDomain,
    }
    /// `ibv_srq`.
    SharedReceiveQueue {
        context: *mut Context,
        srq_context: *mut c_void,
        pd: *mut ProtectionDomain,
        handle: u32,
        mutex: Mutex,
        cond: Condition,
        events_completed: u32,
    }
    /// `ibv_srq_attr`.
    #[derive(Debug, Default, PartialEq, Eq)]
    SharedReceiveAttributes {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }
    /// `ibv_srq_init_attr`, with which `ibv_srq_init_attr_ex` begins.
    SharedReceiveInit {
        srq_context: *mut c_void,
        attr: SharedReceiveAttributes,
    }
    /// `ibv_qp`.
    QueuePair {
        context: *mut Context,
        qp_context: *mut c_void,
        pd: *mut ProtectionDomain,
        send_cq: *mut CompletionQueue,
        recv_cq: *mut CompletionQueue,
        srq: *mut SharedReceiveQueue,
        handle: u32,
        qp_num: u32,
        state: c_int,
        qp_type: c_int,
        mutex: Mutex,
        cond: Condition,
        events_completed: u32,
    }
    /// `ibv_qp_ex`: the queue pair, and the request that is made.
    ExtendedQueuePair {
        queue_pair: QueuePair,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: u32,
        functions: [Function; 21],
    }
    /// `ibv_qp_init_attr`.
    QueuePairInit {
        qp_context: *mut c_void,
        send_cq: *mut CompletionQueue,
        recv_cq: *mut CompletionQueue,
        srq: *mut SharedReceiveQueue,
        cap: QueuePairCapacity,
        qp_type: c_int,
        sq_sig_all: c_int,
    }
    /// `ibv_qp_init_attr_ex`, which begins as [`QueuePairInit`].
    ExtendedQueuePairInit {
        qp_context: *mut c_void,
        send_cq: *mut CompletionQueue,
        recv_cq: *mut CompletionQueue,
        srq: *mut SharedReceiveQueue,
        cap: QueuePairCapacity,
        qp_type: c_int,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ProtectionDomain,
        xrcd: *mut c_void,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: [u64; 3],
        source_qpn: u32,
        send_ops_flags: u64,
    }
    /// `ibv_wc`.
    Completion {
        wr_id: u64,
        status: c_int,
        opcode: c_int,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: u32,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }
    /// `ibv_sge`.
    Sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }
    /// `ibv_data_buf`.
    DataBuffer {
        addr: *const u8,
        length: usize,
    }
    /// `ibv_send_wr`. The two members that follow are those of RDMA; the others overlay them.
    SendRequest {
        wr_id: u64,
        next: *mut SendRequest,
        sg_list: *mut Sge,
        num_sge: c_int,
        opcode: c_int,
        send_flags: u32,
        imm_data: u32,
        remote_addr: u64,
        words: [u64; 10],
    }
    /// `ibv_recv_wr`.
    ReceiveRequest {
        wr_id: u64,
        next: *mut ReceiveRequest,
        sg_list: *mut Sge,
        num_sge: c_int,
    }
    /// `ibv_async_event`.
    AsyncEvent {
        element: u64,
        event_type: c_int,
    }
}

impl SendRequest {
    /// `wr.rdma.rkey`, which overlays a half of `wr.atomic.compare_add`.
    pub(crate) fn rdma_key(&self) -> u32 {
        let [a, b, c, d, ..] = self.words[0].to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    }

    /// `wr.atomic.rkey`.
    pub(crate) fn atomic_key(&self) -> u32 {
        let [a, b, c, d, ..] = self.words[2].to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    }
}

/// Value of `abi_compat` that says that a [`VerbsContext`] lies around the context.
pub(crate) const EXTENDED: usize = usize::MAX;

/// Places in [`Context::ops`].
pub(crate) mod op {
    pub(crate) const POLL_CQ: usize = 11;
    pub(crate) const REQ_NOTIFY_CQ: usize = 12;
    pub(crate) const POST_SRQ_RECV: usize = 20;
    pub(crate) const POST_SEND: usize = 25;
    pub(crate) const POST_RECV: usize = 26;
}

/// Places in [`VerbsContext::functions`].
pub(crate) mod function {
    pub(crate) const QUERY_PORT: usize = 0;
    pub(crate) const QUERY_DEVICE_EX: usize = 27;
    pub(crate) const CREATE_CQ_EX: usize = 25;
    pub(crate) const CREATE_QP_EX: usize = 33;
    pub(crate) const GET_SRQ_NUM: usize = 34;
}

/// `IBV_ACCESS_*`.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    pub(crate) const ZERO_BASED: u32 = 1 << 5;
    /// A hint about the pages of the memory.
    pub(crate) const HUGETLB: u32 = 1 << 7;
    /// Flags that a library may ignore.
    pub(crate) const OPTIONAL: u32 = 0x3ff0_0000;
}

/// `IBV_SEND_*`.
pub(crate) mod send_flag {
    pub(crate) const FENCE: u32 = 1;
    pub(crate) const SIGNALED: u32 = 1 << 1;
    pub(crate) const SOLICITED: u32 = 1 << 2;
    pub(crate) const INLINE: u32 = 1 << 3;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_stand_in::pin;

    #[test]
    fn objects_lie_as_the_headers_have_them() {
        pin!(Device, 664; node_type 16, transport_type 20, name 24, dev_name 88, dev_path 152, ibdev_path 408);
        pin!(Context, 328; device 0, ops 8, cmd_fd 264, async_fd 268, num_comp_vectors 272, mutex 280,
            abi_compat 320);
        pin!(VerbsContext, 648; functions 0, bytes 312, context 320);
        pin!(ProtectionDomain, 16; context 0, handle 8);
        pin!(Region, 48; context 0, pd 8, addr 16, length 24, handle 32, lkey 36, rkey 40);
        pin!(Channel, 16; context 0, fd 8, refcnt 12);
        pin!(CompletionQueue, 128; context 0, channel 8, cq_context 16, handle 24, cqe 28, mutex 32, cond 72,
            comp_events_completed 120, async_events_completed 124);
        pin!(QueuePair, 160; context 0, qp_context 8, pd 16, send_cq 24, recv_cq 32, srq 40, handle 48, qp_num 52,
            state 56, qp_type 60, mutex 64, cond 104, events_completed 152);
        pin!(ExtendedCompletionQueue, 288; queue 0, comp_mask 128, status 132, wr_id 136, functions 144);
        pin!(ExtendedQueuePair, 352; queue_pair 0, comp_mask 160, wr_id 168, wr_flags 176, functions 184);
        pin!(SharedReceiveQueue, 128; context 0, srq_context 8, pd 16, handle 24, mutex 32, cond 72,
            events_completed 120);
        pin!(SharedReceiveAttributes, 12; max_wr 0, max_sge 4, srq_limit 8);
        pin!(SharedReceiveInit, 24; srq_context 0, attr 8);
        assert_eq!((size_of::<Mutex>(), size_of::<libc::pthread_mutex_t>()), (40, 40));
        assert_eq!((size_of::<Condition>(), size_of::<libc::pthread_cond_t>()), (48, 48));
    }

    #[test]
    fn functions_have_the_places_that_inline_code_calls() {
        let ops = std::mem::offset_of!(Context, ops);
        let places = [op::POLL_CQ, op::REQ_NOTIFY_CQ, op::POST_SRQ_RECV, op::POST_SEND, op::POST_RECV];
        assert_eq!(places.map(|place| ops + 8 * place), [96, 104, 168, 208, 216]);
        let places = [function::QUERY_PORT, function::CREATE_CQ_EX, function::QUERY_DEVICE_EX];
        assert_eq!(places.map(|place| 8 * place), [0, 200, 216]);
        assert_eq!([function::CREATE_QP_EX, function::GET_SRQ_NUM].map(|place| 8 * place), [264, 272]);
    }

    #[test]
    fn attributes_lie_as_the_headers_have_them() {
        pin!(GidEntry, 32; gid 0, gid_index 16, port_num 20, gid_type 24, ndev_ifindex 28);
        pin!(QueuePairInit, 64; qp_context 0, send_cq 8, recv_cq 16, srq 24, cap 32, qp_type 52, sq_sig_all 56);
        pin!(ExtendedCompletionQueueInit, 56; cqe 0, cq_context 8, channel 16, comp_vector 24, wc_flags 32,
            comp_mask 40, flags 44, parent_domain 48);
        pin!(ExtendedQueuePairInit, 136; sq_sig_all 56, comp_mask 60, pd 64, xrcd 72, create_flags 80,
            max_tso_header 84, rwq_ind_tbl 88, rx_hash_conf 96, source_qpn 120, send_ops_flags 128);
        pin!(DataBuffer, 16; addr 0, length 8);
    }

    #[test]
    fn requests_and_completions_lie_as_the_headers_have_them() {
        pin!(Completion, 48; wr_id 0, status 8, opcode 12, vendor_err 16, byte_len 20, imm_data 24, qp_num 28,
            src_qp 32, wc_flags 36, pkey_index 40, slid 42, sl 44, dlid_path_bits 45);
        pin!(Sge, 16; addr 0, length 8, lkey 12);
        pin!(SendRequest, 128; wr_id 0, next 8, sg_list 16, num_sge 24, opcode 28, send_flags 32, imm_data 36,
            remote_addr 40, words 48);
        pin!(ReceiveRequest, 32; wr_id 0, next 8, sg_list 16, num_sge 24);
        pin!(AsyncEvent, 16; element 0, event_type 8);
    }
}
