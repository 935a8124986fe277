//! Pool levels: how much of each pool of the card is in use, for the registers.
//!
//! ```text
//!  pools of each part ──> levels, one a pool ──> selection by index ──> value
//! ```
//!
//! Latency 1 cycle from `index` to `value`. The levels are those of the moment; nothing is held. The order is that of
//! [`POOLS`]. Design decision 13.
use rnic_complete::CompletePools;
use rnic_control::control::ControlPools;
use rnic_control::registers::POOL_BITS;
use rnic_dma::gather::GatherPools;
use rnic_dma::place::PlacePools;
use rnic_host::host_reader::HostReadPools;
use rnic_host::host_writer::HostWritePools;
use rnic_kernel::prelude::*;
use rnic_layout::registers::{POOLS, pool};
use rnic_messages::pool::LEVEL_BITS;
use rnic_packet::receive::ReceivePools;
use rnic_requester::requester::RequesterPools;
use rnic_responder::responder::ResponderPools;

const LEVELS: usize = POOLS.len();
/// Levels that are selected together first.
const GROUP: usize = 8;

/// Selects the level of a pool; see the module.
#[clocked]
#[derive(LogicBlock, Registers, Construct)]
pub struct PoolLevels {
    /// Pools of the host reader.
    pub host_reader: Signal<In, HostReadPools>,
    /// Pools of the host writer.
    pub host_writer: Signal<In, HostWritePools>,
    /// Pools of the receive path.
    pub receive: Signal<In, ReceivePools>,
    /// Pools of the responder.
    pub responder: Signal<In, ResponderPools>,
    /// Pools of the requester.
    pub requester: Signal<In, RequesterPools>,
    /// Pools of gather.
    pub gather: Signal<In, GatherPools>,
    /// Pools of place.
    pub place: Signal<In, PlacePools>,
    /// Pools of completions, events and interrupts.
    pub complete: Signal<In, CompletePools>,
    /// Pools of the admin queue.
    pub control: Signal<In, ControlPools>,
    /// Pool whose level is read.
    pub index: Signal<In, Bits<POOL_BITS>>,
    /// Its level; registered.
    pub value: Signal<Out, Bits<LEVEL_BITS>>,

    levels: [Signal<Local, Bits<LEVEL_BITS>>; LEVELS],
    partial: [Signal<Local, Bits<LEVEL_BITS>>; LEVELS],
    chosen: [Signal<Local, Bits<LEVEL_BITS>>; LEVELS],
    held: DFF<Bits<LEVEL_BITS>>,
}

impl Logic for PoolLevels {
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        let host_reader = self.host_reader.val();
        self.levels[pool("host_read_tags")].next = host_reader.tags;
        self.levels[pool("host_read_words")].next = host_reader.words;
        self.levels[pool("host_read_late_tags")].next = host_reader.late_tags;
        self.levels[pool("host_writes")].next = self.host_writer.val().writes;
        let receive = self.receive.val();
        self.levels[pool("request_cells")].next = receive.request_cells;
        self.levels[pool("request_packets")].next = receive.request_packets;
        self.levels[pool("response_beats")].next = receive.response_beats;
        self.levels[pool("response_packets")].next = receive.response_packets;
        let responder = self.responder.val();
        self.levels[pool("responder_packets")].next = responder.packets;
        self.levels[pool("parked_packets")].next = responder.parked;
        self.levels[pool("receive_lines")].next = responder.prefetch.lines;
        self.levels[pool("receive_reads")].next = responder.prefetch.reads;
        self.levels[pool("receive_demands")].next = responder.prefetch.demands;
        self.levels[pool("replies")].next = responder.replies;
        self.levels[pool("read_turns")].next = responder.reads.turns;
        self.levels[pool("read_responses")].next = responder.read_responses;
        self.levels[pool("read_duplicates")].next = responder.reads.duplicates;
        self.levels[pool("atomics")].next = responder.atomics;
        self.levels[pool("atomics_executing")].next = responder.atomics_executing;
        let requester = self.requester.val();
        self.levels[pool("send_queues")].next = requester.send_queues;
        self.levels[pool("wqe_slots")].next = requester.wqe_slots;
        self.levels[pool("wqe_bursts")].next = requester.wqe_bursts;
        self.levels[pool("send_line")].next = requester.send_line;
        self.levels[pool("messages")].next = requester.messages;
        self.levels[pool("message_blocks")].next = requester.message_blocks;
        self.levels[pool("long_messages")].next = requester.long_messages;
        self.levels[pool("long_turns")].next = requester.long_turns;
        self.levels[pool("responses")].next = requester.responses;
        self.levels[pool("completing")].next = requester.completing;
        let gather = self.gather.val();
        self.levels[pool("gather_packets")].next = gather.packets;
        self.levels[pool("gather_beats")].next = gather.beats;
        self.levels[pool("inline_slots")].next = gather.inline_slots;
        let place = self.place.val();
        self.levels[pool("place_packets")].next = place.packets;
        self.levels[pool("place_writes")].next = place.writes;
        self.levels[pool("place_failures")].next = place.failures;
        let complete = self.complete.val();
        self.levels[pool("completions")].next = complete.deliveries;
        self.levels[pool("completion_writes")].next = complete.writes;
        self.levels[pool("events")].next = complete.events;
        self.levels[pool("refused_completions")].next = complete.refusals;
        let control = self.control.val();
        self.levels[pool("commands")].next = control.commands;
        self.levels[pool("read_slots")].next = control.slots.read_slots;
        self.levels[pool("destination_read_slots")].next = control.slots.destination_read_slots;

        // A multiplexer of all levels, in groups of eight.
        let index = self.index.val();
        for i in 0..LEVELS {
            let mine = select(index == i as u64, self.levels[i].val(), bits::<LEVEL_BITS>(0));
            self.partial[i].next = if i % GROUP == 0 { mine } else { self.partial[i - 1].val() | mine };
            let ends_group = i % GROUP == GROUP - 1 || i == LEVELS - 1;
            let before = if i == 0 { bits::<LEVEL_BITS>(0) } else { self.chosen[i - 1].val() };
            self.chosen[i].next = if ends_group { before | self.partial[i].val() } else { before };
        }
        self.held.d.next = self.chosen[LEVELS - 1].val();
        self.value.next = self.held.q.val();
    }
}
