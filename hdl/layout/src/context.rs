#![doc = include_str!("manual/contexts.md")]

use crate::admin::{RegionKind, Translation};
use crate::doorbell::Arm;
use crate::field::{Record, record, values};
use crate::queue::completion::CompletionStatus;
use crate::queue::send::WqeOpcode;
use crate::state::{PathMtu, QpState, Service};

values! {
    /// What a queue pair's timer waits for. It has one: while it waits out an RNR delay, nothing is being sent that
    /// could be acknowledged.
    pub enum TimerKind, "protocol 2.6, 2.7" {
        /// It does not run.
        Stopped = 0, "stopped";
        /// Acknowledgement time-out.
        Acknowledge = 1, "acknowledge";
        /// End of an RNR delay.
        NotReady = 2, "not_ready";
    }
}

record! {
    /// What is known of every queue pair at all times, on chip. The doorbell slave, the scheduler and the admission of packets
    /// need no more than this to answer in bounded time.
    ///
    /// The timer is a floating number: `timer_deadline` counts units of 512 ns x 2^`timer_exponent`, modulo 32, of the
    /// card's clock. With the exponent equal to the attribute `timeout`, T is eight units, so a deadline of nine units ahead
    /// lies between T and 1.125 T, and five bits tell before from after. RNR delays round up in the same way.
    pub struct ResidentRecord: 72 bits by Life, "design decision 5" {
        /// Life state.
        state: QpState = 0..3, "protocol 4.1";
        /// Transport service, so that packets of another transport stop here.
        service: Service = 3..5, "protocol 1.4";
        /// Counts up when the queue pair is created, reset or destroyed.
        generation: u8 = 5..13, "design decision 8";
        /// Page whose doorbells are for this queue pair.
        doorbell_page: u16 = 13..25, "design decision 14";
        /// Slots ever posted.
        send_producer_index: u16 = 25..41, "design decision 5", unit "slots", by Doorbell;
        /// Receive entries ever posted.
        receive_producer_index: u16 = 41..57, "design decision 5", unit "entries", by Doorbell;
        /// Slots are posted that were not yet segmented.
        has_work: bool = 57..58, "design decision 10", by Schedule;
        /// Nothing holds them back: PSN window, READ depth, fence, pool.
        has_window: bool = 58..59, "design decision 10", by Schedule;
        /// The queue pair has its turn, and does not stand in line.
        in_service: bool = 59..60, "design decision 10", by Schedule;
        /// What the timer waits for.
        timer_kind: TimerKind = 60..62, "protocol 2.6", by Timer;
        /// Unit: 512 ns x 2^n.
        timer_exponent: u8 = 62..67, "protocol 2.6", by Timer;
        /// When it fires, in units, modulo 32.
        timer_deadline: u8 = 67..72, "protocol 2.6", by Timer;
    }
}

record! {
    /// What is set by commands and constant while packets flow: who the peer is, how to reach it, what it may do, and where the
    /// rings stand.
    pub struct PathRecord: 576 bits by Admin, "design decision 6" {
        /// The whole QPN; packets carry it as destination and must match it whole.
        local_qp: u32 = 0..24, "protocol 1.3";
        /// QPN of the peer.
        destination_qp: u32 = 24..48, "protocol 1.3";
        /// Transport service.
        service: Service = 48..50, "protocol 1.4";
        /// PMTU.
        path_mtu: PathMtu = 50..53, "protocol 2.2";
        /// IPv6 if set, else IPv4.
        is_ipv6: bool = 53..54, "protocol 1.2";
        /// Frames carry an 802.1Q tag.
        vlan_present: bool = 54..55, "protocol 1.2";
        /// Receives come from a shared queue.
        shared_receive: bool = 55..56, "protocol 4.5";
        /// Every send entry counts as signalled.
        signal_all: bool = 56..57, "protocol 2.11";
        /// The peer may write.
        remote_write: bool = 57..58, "protocol 3.6 row 5";
        /// The peer may read.
        remote_read: bool = 58..59, "protocol 3.6 row 5";
        /// The peer may do atomics.
        remote_atomic: bool = 59..60, "protocol 3.6 row 5";
        /// Generation for which the record was written.
        generation: u8 = 60..68, "design decision 8";
        /// The peer's address as a GID, the first byte on the wire being the most significant. Packets of RC and UC
        /// must come from it.
        destination_address: u128 = 68..196, "protocol 4.2";
        /// Ethernet address of the next hop.
        destination_mac: u64 = 196..244, "protocol 4.2";
        /// Tag control information.
        vlan_control: u16 = 244..260, "protocol 1.2";
        /// IPv4 type of service, or IPv6 traffic class.
        traffic_class: u8 = 260..268, "protocol 4.2";
        /// IPv4 time to live, or IPv6 hop limit.
        hop_limit: u8 = 268..276, "protocol 4.2";
        /// IPv6 flow label.
        flow_label: u32 = 276..296, "protocol 1.2";
        /// UDP source port.
        source_port: u16 = 296..312, "protocol 1.2";
        /// Entry of the table of source addresses.
        source_address_index: u8 = 312..316, "protocol 4.2";
        /// P_Key.
        partition_key: u16 = 316..332, "protocol 4.3";
        /// Q_Key of a datagram queue pair.
        queue_key: u32 = 332..364, "protocol 4.3";
        /// Protection domain.
        domain: u32 = 364..388, "protocol 4.6";
        /// Acknowledgement time-out 4.096 us x 2^n; zero for none.
        timeout: u8 = 388..393, "protocol 2.6";
        /// What `retries_left` is reloaded with.
        retry_count: u8 = 393..396, "protocol 2.6";
        /// What `rnr_retries_left` is reloaded with; seven for ever.
        rnr_retry: u8 = 396..399, "protocol 2.7";
        /// Code of the delay that own RNR NAKs ask for.
        min_rnr_timer: u8 = 399..404, "protocol 1.6";
        /// READs and atomics in flight as requester.
        read_atomic: u8 = 404..409, "protocol 2.3", allowed 0..=16;
        /// The same as responder: places in use of the resource ring.
        destination_read_atomic: u8 = 409..414, "protocol 3.5", allowed 0..=16;
        /// Completion queue of sends.
        send_completion_queue: u16 = 414..430, "protocol 4.4";
        /// Completion queue of receives.
        receive_completion_queue: u16 = 430..446, "protocol 4.4";
        /// Shared receive queue.
        shared_receive_queue: u16 = 446..462, "protocol 4.5";
        /// Device address of the send ring.
        send_base_page: u64 = 462..514, "design 3.2", unit "4096 bytes";
        /// Its slots, as a power of two.
        send_slots_log2: u8 = 514..518, "design 3.2";
        /// Device address of the receive ring.
        receive_base_page: u64 = 518..570, "design 3.2", unit "4096 bytes";
        /// Its entries, as a power of two.
        receive_wqes_log2: u8 = 570..574, "design 3.2";
        /// The end of draining raises an event.
        drain_notify: bool = 574..575, "protocol 3.10";
        /// Local write: kept for queries only, since a queue pair's own writes are checked against its keys.
        local_write: bool = 575..576, "protocol 4.6";
    }
}

values! {
    /// What segmentation is doing for a queue pair.
    pub enum SendPhase, "protocol 2.1" {
        /// Between messages.
        Idle = 0, "idle";
        /// Inside a message: `message_offset` bytes of it are sent.
        InMessage = 1, "in_message";
        /// Before a message that must wait: fence, READ depth, strong order.
        Held = 2, "held";
        /// Stopped: draining, or going back has been asked for by an RNR NAK.
        Stopped = 3, "stopped";
        /// Failed: what is posted is flushed.
        Flushing = 4, "flushing";
    }
}

record! {
    /// Where segmentation stands: which slot, how far into its message, and the PSN of the next packet.
    pub struct SendRecord: 216 bits by Send, "design decision 6" {
        /// What segmentation is doing.
        phase: SendPhase = 0..3, "protocol 2.1";
        /// Generation of the queue pair for which the record was written.
        generation: u8 = 3..11, "design decision 8";
        /// Counts the times of going back, modulo 16; fetches in flight carry it.
        rewind_count: u8 = 11..15, "design decision 8";
        /// PSN of the next packet.
        next_psn: u32 = 15..39, "protocol 2.1";
        /// First PSN that was never sent: `nxt` of the notes. Equal to `next_psn` unless going back.
        unsent_psn: u32 = 39..63, "protocol 2.5";
        /// Free-running index of the slot whose message comes next or is being sent.
        slot_index: u16 = 63..79, "design 3.2", unit "slots";
        /// Bytes of that message that are sent.
        message_offset: u32 = 79..111, "protocol 2.2", unit "bytes";
        /// SSN: messages begun, going back not counted; messages in flight are this less `messages_completed`.
        message_number: u32 = 111..135, "protocol 2.9";
        /// READs and atomics begun, modulo 256.
        reads_issued: u8 = 135..143, "protocol 2.3";
        /// Packets since the last with AckReq.
        packets_since_request: u8 = 143..149, "protocol 2.4";
        /// Block of the pool where the next message is noted.
        outstanding_block: u16 = 149..165, "design decision 9";
        /// Place in that block.
        outstanding_place: u8 = 165..168, "design decision 9";
        /// The block is held; the first of a queue pair is guaranteed.
        has_block: bool = 168..169, "design decision 9";
    }
    reserved { 169..216 }
}

values! {
    /// What the response stage is doing for a queue pair.
    pub enum ResponsePhase, "protocol 2.5" {
        /// Responses are taken.
        Running = 0, "running";
        /// An RNR delay runs: responses are taken, requests wait.
        NotReadyWait = 1, "not_ready_wait";
        /// Failed: the oldest message completes with `failure`, all others with `flushed`.
        Failed = 2, "failed";
    }
}

record! {
    /// What is known of the peer's answers: the oldest unanswered PSN, the READ whose data is arriving, and what is left of
    /// retries.
    pub struct AcknowledgeRecord: 216 bits by Acknowledge, "design decision 6" {
        /// What the response stage is doing.
        phase: ResponsePhase = 0..2, "protocol 2.5";
        /// Generation of the queue pair for which the record was written.
        generation: u8 = 2..10, "design decision 8";
        /// The number of the last time of going back that was asked for.
        rewind_count: u8 = 10..14, "design decision 8";
        /// Oldest PSN that is not acknowledged.
        una_psn: u32 = 14..38, "protocol 2.5";
        /// PSN of the next READ response or atomic answer to be taken.
        response_psn: u32 = 38..62, "protocol 2.5";
        /// Bytes of the current READ that are placed; where it is asked for again.
        response_bytes: u32 = 62..94, "protocol 2.5", unit "bytes";
        /// FIRST has come, LAST not.
        in_response: bool = 94..95, "protocol 2.5";
        /// Reloaded on progress.
        retries_left: u8 = 95..98, "protocol 2.6";
        /// Reloaded on progress; seven is never counted down.
        rnr_retries_left: u8 = 98..101, "protocol 2.7";
        /// Going back has begun and made no progress yet: further gaps at `rewind_psn` cost no retry.
        rewinding: bool = 101..102, "protocol 2.6";
        /// Where it went back to.
        rewind_psn: u32 = 102..126, "protocol 2.6";
        /// First slot still in use: `consumer_index` of completions.
        slot_index: u16 = 126..142, "design 3.2", unit "slots";
        /// Messages completed, modulo 65536.
        messages_completed: u16 = 142..158, "protocol 2.11";
        /// READs and atomics completed, modulo 256.
        reads_completed: u8 = 158..166, "protocol 2.3";
        /// Block of the pool where the oldest message is noted.
        outstanding_block: u16 = 166..182, "design decision 9";
        /// Place in that block.
        outstanding_place: u8 = 182..185, "design decision 9";
        /// LSN: last message that the peer's credits allow.
        credit_limit: u32 = 185..209, "protocol 2.9";
        /// Credits were conveyed; else nothing is limited.
        credits_valid: bool = 209..210, "protocol 2.9";
        /// Status of the message that failed.
        failure: CompletionStatus = 210..215, "protocol 2.11";
    }
    reserved { 215..216 }
}

values! {
    /// What an arriving message is.
    pub enum MessageKind, "protocol 3.3" {
        /// Between messages.
        None = 0, "none";
        /// Inside a SEND.
        Send = 1, "send";
        /// Inside a WRITE.
        Write = 2, "write";
        /// UC: the rest of the message is dropped.
        Skip = 3, "skip";
    }
}

record! {
    /// What admission knows: the expected PSN, and the message that is arriving.
    pub struct ReceiveRecord: 288 bits by Receive, "design decision 6" {
        /// What is arriving.
        message: MessageKind = 0..2, "protocol 3.3";
        /// Generation of the queue pair for which the record was written.
        generation: u8 = 2..10, "design decision 8";
        /// PSN that is accepted next.
        expected_psn: u32 = 10..34, "protocol 3.2";
        /// Messages executed.
        msn: u32 = 34..58, "protocol 3.7";
        /// A NAK is out for `expected_psn`; nothing more is said until it arrives.
        nak_sent: bool = 58..59, "protocol 3.2";
        /// A fatal NAK was asked for; everything is dropped.
        failed: bool = 59..60, "protocol 3.2";
        /// The event for the first packet was raised.
        established: bool = 60..61, "protocol 3.9";
        /// WRITE: address of the next byte.
        write_address: u64 = 61..125, "protocol 3.7";
        /// WRITE: key of the region; looked up again for each packet, since it can be invalidated.
        write_key: u32 = 125..157, "protocol 3.7";
        /// WRITE: length that the RETH promised.
        message_length: u32 = 157..189, "protocol 3.6 row 9", unit "bytes";
        /// Bytes arrived.
        message_bytes: u32 = 189..221, "protocol 3.7", unit "bytes";
        /// Receive entries ever consumed.
        receive_index: u16 = 221..237, "design 3.2", unit "entries";
        /// SEND: where the copy of the consumed receive entry stands.
        receive_copy: u16 = 237..253, "design decision 9";
        /// `receive_copy` is held; an error then ends it.
        has_receive: bool = 253..254, "protocol 3.6 row 3";
        /// READs and atomics accepted, modulo 256; the low four bits are the place in the ring.
        resources_taken: u8 = 254..262, "protocol 3.5";
        /// When the last CNP was asked for.
        congestion_time: u16 = 262..278, "protocol 5.1", unit "256 cycles";
    }
    reserved { 278..288 }
}

values! {
    /// What the reply stage is doing for a queue pair.
    pub enum ReplyPhase, "protocol 3.8" {
        /// Nothing is being served; a pending acknowledgement can leave.
        Idle = 0, "idle";
        /// A READ is being served.
        Read = 1, "read";
        /// An atomic waits for its result.
        Atomic = 2, "atomic";
        /// A fatal NAK has left.
        Failed = 3, "failed";
    }
}

record! {
    /// What is owed to the peer. A pending ACK or NAK is state, not an entry of a queue: a newer one takes the place of an older,
    /// so receive never waits for transmit (design decision 4).
    pub struct ReplyRecord: 216 bits by Reply, "design decision 6" {
        /// What the reply stage is doing.
        phase: ReplyPhase = 0..2, "protocol 3.8";
        /// Generation of the queue pair for which the record was written.
        generation: u8 = 2..10, "design decision 8";
        /// An ACK or NAK waits to leave.
        pending: bool = 10..11, "protocol 3.8";
        /// Its syndrome.
        pending_syndrome: u8 = 11..19, "protocol 1.6";
        /// Its PSN.
        pending_psn: u32 = 19..43, "protocol 3.8";
        /// Its MSN.
        pending_msn: u32 = 43..67, "protocol 3.8";
        /// It leaves once `resources_done` has reached this: never past an unsent READ response.
        pending_resource: u8 = 67..75, "protocol 3.8";
        /// And once so many writes, modulo 65536, were reported done.
        pending_write_count: u16 = 75..91, "design decision 11";
        /// PSN of the last request that was acknowledged; what a duplicate is answered with.
        acknowledged_psn: u32 = 91..115, "protocol 3.4";
        /// READs and atomics answered, modulo 256; the low four bits are the place being served.
        resources_done: u8 = 115..123, "protocol 3.5";
        /// PSN of the next READ response.
        response_psn: u32 = 123..147, "protocol 2.1";
        /// Bytes of the READ that are sent.
        response_bytes: u32 = 147..179, "protocol 3.7", unit "bytes";
        /// A duplicate is being answered, from `replay_place`.
        replaying: bool = 179..180, "protocol 3.4";
        /// Place in the ring of what is answered again.
        replay_place: u8 = 180..184, "protocol 3.4";
        /// PSN from which on.
        replay_psn: u32 = 184..208, "protocol 3.4";
    }
    reserved { 208..216 }
}

values! {
    /// What a responder keeps for answering again.
    pub enum ResourceKind, "protocol 3.5" {
        /// Nothing.
        Free = 0, "free";
        /// A READ.
        Read = 1, "read";
        /// COMPARE_SWAP.
        CompareSwap = 2, "compare_swap";
        /// FETCH_ADD.
        FetchAdd = 3, "fetch_add";
    }
}

record! {
    /// A READ in the ring of sixteen places that each responder has. A READ and an atomic take the same place, and are told
    /// apart by their first field.
    pub struct ReadResource: 216 bits by Receive, "protocol 3.5" {
        /// READ.
        kind: ResourceKind = 0..2, "protocol 3.5", reset 1;
        /// Generation of the queue pair.
        generation: u8 = 2..10, "design decision 8";
        /// PSN of the request and of its first response.
        first_psn: u32 = 10..34, "protocol 3.5";
        /// PSN of its last response.
        last_psn: u32 = 34..58, "protocol 3.5";
        /// MSN that its responses carry.
        msn: u32 = 58..82, "protocol 3.7";
        /// Address; a duplicate must lie within.
        address: u64 = 82..146, "protocol 3.4";
        /// Key of the region.
        key: u32 = 146..178, "protocol 3.4";
        /// Length.
        length: u32 = 178..210, "protocol 3.4", unit "bytes";
    }
    reserved { 210..216 }
}

record! {
    /// An atomic in the same ring.
    pub struct AtomicResource: 216 bits by Receive, "protocol 3.5" {
        /// COMPARE_SWAP or FETCH_ADD.
        kind: ResourceKind = 0..2, "protocol 3.5", reset 2;
        /// Generation of the queue pair.
        generation: u8 = 2..10, "design decision 8";
        /// PSN of the request and of its answer.
        psn: u32 = 10..34, "protocol 3.5";
        /// MSN that its answer carries.
        msn: u32 = 34..58, "protocol 3.7";
        /// It has been executed, and is never executed again.
        original_valid: bool = 58..59, "protocol 3.4", by Place;
        /// What the memory held before, as an integer.
        original: u64 = 59..123, "protocol 3.4", by Place;
    }
    reserved { 123..216 }
}

record! {
    /// A message of the requester that is not completed: what completes it, and where to begin again. Messages of a queue pair
    /// stand in a chain of blocks of eight, in order; *send* writes at the end, *acknowledge* reads from the beginning.
    pub struct OutstandingMessage: 216 bits by Send, "design decision 9" {
        /// What it is; READs and atomics are not completed by an ACK.
        opcode: WqeOpcode = 0..4, "protocol 4.1";
        /// It completes visibly also when all goes well.
        signalled: bool = 4..5, "protocol 2.11";
        /// It takes two slots.
        two_slots: bool = 5..6, "design 3.2";
        /// Generation of the queue pair.
        generation: u8 = 6..14, "design decision 8";
        /// PSN of its first packet.
        first_psn: u32 = 14..38, "protocol 2.1";
        /// PSN of its last packet; for a READ, of the last response.
        last_psn: u32 = 38..62, "protocol 2.1";
        /// Where it is fetched again.
        slot_index: u16 = 62..78, "design 3.2", unit "slots";
        /// SSN.
        message_number: u32 = 78..102, "protocol 2.9";
        /// Its length, for the completion of a READ.
        length: u32 = 102..134, "protocol 2.11", unit "bytes";
        /// Its tag.
        wr_id: u64 = 134..198, "design 3.2";
        /// READs and atomics: where their answer goes, an [`AnswerSink`].
        sink: u16 = 198..214, "design decision 9";
    }
    reserved { 214..216 }
}

record! {
    /// The chain of a block: one word beside each block of eight messages.
    pub struct OutstandingLink: 18 bits by Send, "design decision 9" {
        /// The block that follows.
        next_block: u16 = 0..16, "design decision 9";
        /// There is one.
        has_next: bool = 16..17, "design decision 9";
    }
    reserved { 17..18 }
}

record! {
    /// Where the answer of a READ or atomic goes: at most two elements, so that an answer never waits for a fetch. Larger
    /// lists are refused when the READ is begun (protocol 2.11: LOC_QP_OP).
    pub struct AnswerSink: 288 bits by Send, "design decision 9" {
        /// Generation of the queue pair.
        generation: u8 = 0..8, "design decision 8";
        /// Elements in use.
        sge_count: u8 = 8..10, "design 3.2", allowed 0..=2;
        /// First element: address.
        first_address: u64 = 10..74, "protocol 4.6";
        /// First element: key.
        first_key: u32 = 74..106, "protocol 4.6";
        /// First element: length.
        first_length: u32 = 106..138, "protocol 4.6", unit "bytes";
        /// Second element: address.
        second_address: u64 = 138..202, "protocol 4.6";
        /// Second element: key.
        second_key: u32 = 202..234, "protocol 4.6";
        /// Second element: length.
        second_length: u32 = 234..266, "protocol 4.6", unit "bytes";
    }
    reserved { 266..288 }
}

record! {
    /// A region or window, 64 bytes; its index is the key's high 24 bits. A check compares the whole key, then the domain or
    /// queue pair, then rights, then bounds by subtraction (protocol 4.6).
    pub struct RegionEntry: 512 bits by Regions, "design 3.2" {
        /// The whole key.
        key: u32 = 0..32, "protocol 4.6";
        /// What the key stands for.
        kind: RegionKind = 32..35, "protocol 4.6";
        /// Work requests and peers may invalidate it.
        invalidatable: bool = 35..36, "protocol 4.6";
        /// Local write.
        local_write: bool = 40..41, "protocol 4.6";
        /// Peers may write.
        remote_write: bool = 41..42, "protocol 4.6";
        /// Peers may read.
        remote_read: bool = 42..43, "protocol 4.6";
        /// Peers may do atomics.
        remote_atomic: bool = 43..44, "protocol 4.6";
        /// Windows may be bound.
        window_bind: bool = 44..45, "protocol 4.6";
        /// Addresses count from zero.
        zero_based: bool = 45..46, "protocol 4.6";
        /// Payload may be written out of order.
        relaxed_order: bool = 46..47, "protocol 2.10";
        /// How addresses are translated.
        translation: Translation = 48..50, "design 3.2";
        /// Size of its pages, as a power of two.
        page_log2: u8 = 56..61, "design 3.2", reset 12, allowed 12..=30;
        /// First address in its own address space.
        first_address: u64 = 64..128, "protocol 4.6";
        /// Length.
        length: u64 = 128..192, "protocol 4.6", unit "bytes";
        /// Device address of the memory or of its page list.
        translation_base: u64 = 192..256, "design 3.2";
        /// Place of the first byte in the first page.
        first_offset: u32 = 256..286, "design 3.2", unit "bytes";
        /// Protection domain.
        domain: u32 = 288..312, "protocol 4.6";
        /// Type 2 window: the queue pair that it is bound to.
        window_qp: u32 = 320..344, "protocol 4.6";
        /// Window: index of its region.
        parent_index: u32 = 352..376, "protocol 4.6";
        /// Windows bound to this region; while there are any, it cannot be destroyed.
        windows: u32 = 384..408, "protocol 4.6";
        /// Accesses that were permitted and are not finished; destroying waits for zero.
        in_flight: u16 = 416..432, "design decision 8";
    }
    reserved { 36..40, 47..48, 50..56, 61..64, 286..288, 312..320, 344..352, 376..384, 408..416, 432..512 }
}

record! {
    /// A completion queue.
    ///
    /// It is armed when `arm_sequence` and `event_sequence` differ. It has overrun when an entry is to be written and
    /// `producer_index - consumer_index` is the size of the ring.
    pub struct CompletionQueueRecord: 216 bits by Admin, "protocol 4.4" {
        /// It exists.
        valid: bool = 0..1, "protocol 4.4";
        /// Entries, as a power of two.
        entries_log2: u8 = 1..6, "protocol 4.4";
        /// Where its events go.
        event_queue: u8 = 6..14, "protocol 4.4";
        /// Page whose doorbells are for it.
        doorbell_page: u16 = 14..26, "design decision 14";
        /// An event waits for so many completions.
        moderation_count: u16 = 26..42, "protocol 4.4";
        /// But no longer than this.
        moderation_period: u16 = 42..58, "protocol 4.4", unit "256 cycles";
        /// Device address of the ring.
        base_page: u64 = 58..110, "design 3.2", unit "4096 bytes";
        /// Entries ever written.
        producer_index: u32 = 110..134, "protocol 4.4", unit "entries", by Complete;
        /// `producer_index` at the last event; what came since waits for moderation.
        event_index: u32 = 134..158, "protocol 4.4", unit "entries", by Complete;
        /// `arm_sequence` that the last event answered.
        event_sequence: u8 = 158..160, "protocol 4.4", by Complete;
        /// A solicited or failed completion came since the last event.
        solicited_waits: bool = 160..161, "protocol 4.4", by Complete;
        /// It was full; it takes nothing any more.
        overrun: bool = 161..162, "protocol 4.4", by Complete;
        /// Entries ever read.
        consumer_index: u32 = 162..186, "protocol 4.4", unit "entries", by Doorbell;
        /// What it is armed for.
        arm: Arm = 186..188, "protocol 4.4", by Doorbell;
        /// Counts the armings, modulo 4.
        arm_sequence: u8 = 188..190, "protocol 4.4", by Doorbell;
    }
    reserved { 190..216 }
}

record! {
    /// An event queue. Its interrupt is armed when `arm_sequence` and `interrupt_sequence` differ.
    pub struct EventQueueRecord: 144 bits by Admin, "protocol 4.4" {
        /// It exists.
        valid: bool = 0..1, "protocol 4.4";
        /// Entries, as a power of two.
        entries_log2: u8 = 1..6, "protocol 4.4";
        /// Interrupt vector.
        vector: u8 = 6..12, "protocol 4.4";
        /// Page whose doorbells are for it.
        doorbell_page: u16 = 12..24, "design decision 14";
        /// Device address of the ring.
        base_page: u64 = 24..76, "design 3.2", unit "4096 bytes";
        /// Entries ever written.
        producer_index: u32 = 76..100, "protocol 4.4", unit "entries", by Event;
        /// `arm_sequence` that the last interrupt answered.
        interrupt_sequence: u8 = 100..102, "protocol 4.4", by Event;
        /// It was full: an event was lost, and the device has failed.
        overrun: bool = 102..103, "protocol 4.4", by Event;
        /// Entries ever read.
        consumer_index: u32 = 103..127, "protocol 4.4", unit "entries", by Doorbell;
        /// Counts the armings, modulo 4.
        arm_sequence: u8 = 127..129, "protocol 4.4", by Doorbell;
    }
    reserved { 129..144 }
}

record! {
    /// A shared receive queue. Its limit is armed when `limit_sequence` and `event_sequence` differ.
    pub struct SharedReceiveQueueRecord: 216 bits by Admin, "protocol 4.5" {
        /// It exists.
        valid: bool = 0..1, "protocol 4.5";
        /// Entries, as a power of two.
        entries_log2: u8 = 1..5, "protocol 4.5";
        /// Page whose doorbells are for it.
        doorbell_page: u16 = 5..17, "design decision 14";
        /// Protection domain of its elements.
        domain: u32 = 17..41, "protocol 4.5";
        /// Device address of the ring.
        base_page: u64 = 41..93, "design 3.2", unit "4096 bytes";
        /// One event when fewer are posted.
        limit: u16 = 93..109, "protocol 4.5", unit "entries";
        /// Counts the settings of the limit, modulo 4.
        limit_sequence: u8 = 109..111, "protocol 4.5";
        /// Entries ever consumed.
        consumer_index: u16 = 111..127, "protocol 4.5", unit "entries", by Receive;
        /// `limit_sequence` that the last event answered.
        event_sequence: u8 = 127..129, "protocol 4.5", by Receive;
        /// Its ring could not be read.
        failed: bool = 129..130, "protocol 4.5", by Receive;
        /// Entries ever posted.
        producer_index: u16 = 130..146, "protocol 4.5", unit "entries", by Doorbell;
    }
    reserved { 146..216 }
}

/// Places of a queue pair's records in its 256 bytes of host memory, each at a multiple of eight. The bytes from 208 on are kept
/// for rate control (protocol 5.1), so that it can be added without moving anything.
pub const QUEUE_PAIR_LINE: &[(&Record, usize)] = &[
    (&PathRecord::RECORD, 0),
    (&SendRecord::RECORD, 72),
    (&AcknowledgeRecord::RECORD, 104),
    (&ReceiveRecord::RECORD, 136),
    (&ReplyRecord::RECORD, 176),
];
/// Bytes of host memory for the records of a queue pair.
pub const QUEUE_PAIR_LINE_BYTES: usize = 256;
/// Byte of that memory where rate control will stand.
pub const RATE_CONTROL_OFFSET: usize = 208;
/// Bytes of host memory for one place of a responder's ring of READs and atomics.
pub const RESOURCE_BYTES: usize = 32;
/// Places of that ring.
pub const RESOURCE_PLACES: usize = 16;

const _: () = {
    let mut index = 0;
    let mut end = 0;
    while index < QUEUE_PAIR_LINE.len() {
        let (record, offset) = QUEUE_PAIR_LINE[index];
        assert!(offset >= end && offset.is_multiple_of(8), "records of a line overlap, or are not aligned");
        assert!(record.bits.is_multiple_of(72), "a record does not fill the words of block RAM");
        end = offset + record.bytes();
        index += 1;
    }
    assert!(end <= RATE_CONTROL_OFFSET && RATE_CONTROL_OFFSET < QUEUE_PAIR_LINE_BYTES);
    assert!(ResidentRecord::RECORD.bits == 72);
    assert!(ReadResource::BYTES <= RESOURCE_BYTES && ReadResource::BYTES == AtomicResource::BYTES);
    assert!(RESOURCE_PLACES == crate::limits::READ_ATOMIC_MAX as usize);
    assert!(RegionEntry::BYTES == 64);
};

/// Every record of the card's own state, in the order of the manual.
pub const RECORDS: &[&Record] = &[
    &ResidentRecord::RECORD,
    &PathRecord::RECORD,
    &SendRecord::RECORD,
    &AcknowledgeRecord::RECORD,
    &ReceiveRecord::RECORD,
    &ReplyRecord::RECORD,
    &ReadResource::RECORD,
    &AtomicResource::RECORD,
    &OutstandingMessage::RECORD,
    &OutstandingLink::RECORD,
    &AnswerSink::RECORD,
    &RegionEntry::RECORD,
    &CompletionQueueRecord::RECORD,
    &EventQueueRecord::RECORD,
    &SharedReceiveQueueRecord::RECORD,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Writer;

    #[test]
    fn the_four_records_of_a_queue_pair_have_one_writer_each() {
        for (record, writer) in [
            (SendRecord::RECORD, Writer::Send),
            (AcknowledgeRecord::RECORD, Writer::Acknowledge),
            (ReceiveRecord::RECORD, Writer::Receive),
            (ReplyRecord::RECORD, Writer::Reply),
            (PathRecord::RECORD, Writer::Admin),
        ] {
            assert!(record.fields.iter().all(|field| field.writer == writer), "{}", record.name);
        }
    }

    #[test]
    fn a_read_and_an_atomic_are_told_apart_at_the_same_place() {
        let (read, atomic) = (ReadResource::RECORD.field("kind"), AtomicResource::RECORD.field("kind"));
        assert_eq!((read.offset, read.width), (atomic.offset, atomic.width));
        assert_eq!(ReadResource::at_reset().kind, ResourceKind::Read);
        assert_eq!(AtomicResource::at_reset().kind, ResourceKind::CompareSwap);
    }

    /// A fresh queue pair is all zeros, so that a table can be cleared by writing nothing but zeros.
    #[test]
    fn the_records_of_a_queue_pair_reset_to_zero() {
        for (record, _) in QUEUE_PAIR_LINE {
            assert!(record.fields.iter().all(|field| field.reset == 0), "{}", record.name);
        }
        assert!(ResidentRecord::RECORD.fields.iter().all(|field| field.reset == 0));
    }

    #[test]
    fn a_record_reads_back_from_host_memory() {
        let record = AcknowledgeRecord {
            una_psn: 0xff_ffff,
            response_bytes: u32::MAX,
            retries_left: 7,
            failure: CompletionStatus::RetryExceeded,
            phase: ResponsePhase::Failed,
            ..AcknowledgeRecord::at_reset()
        };
        assert_eq!(AcknowledgeRecord::parse(&record.to_bytes().unwrap()), Ok(record));
    }

    /// Indices of a ring must tell full from empty, and split counters must hold what can be in flight.
    #[test]
    fn counters_are_wide_enough_for_what_they_count() {
        use crate::limits;
        assert!(1 << limits::SEND_SLOTS_LOG2_MAX < 1u64 << SendRecord::RECORD.field("slot_index").width);
        assert!(
            1 << limits::RECEIVE_WQES_LOG2_MAX < 1u64 << ReceiveRecord::RECORD.field("receive_index").width
        );
        assert!(
            1 << limits::CQES_LOG2_MAX < 1u64 << CompletionQueueRecord::RECORD.field("producer_index").width
        );
        assert!(u64::from(limits::READ_ATOMIC_MAX) < 1 << SendRecord::RECORD.field("reads_issued").width);
        assert_eq!(SendRecord::RECORD.field("outstanding_block").width, limits::OUTSTANDING_BLOCKS_LOG2_MAX);
        assert_eq!(
            1 << SendRecord::RECORD.field("outstanding_place").width,
            limits::OUTSTANDING_BLOCK_MESSAGES
        );
        assert!(u64::from(limits::MESSAGE_BYTES_MAX) <= SendRecord::RECORD.field("message_offset").max());
    }
}
