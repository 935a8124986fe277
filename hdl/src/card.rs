//! The card: its parts and the wires between them.
//!
//! ```text
//!             registers, doorbells, commands, life of queue pairs            host memory
//!  s_axil ──> control ──────────────────────────────────────────┐        ^              ^
//!               │ setup events to every stage                   │        │              │
//!               │ ┌─────────────────────────────────────┐  host_reader   │         host_writer
//!               │ │ send and receive WQEs, commands, payload <──┘        │              ^
//!               v v                                                      │   payload,   │
//!            requester ─GatherCommand─> gather ─> address_vector ─> assemble   CQEs,     │
//!               │  ^ └─ regions            payload     ^           │     │   answers    │
//!               │  └──────────────┐                    │ ACKs      v     │              │
//!               │   responses     │        ┌───────────┘         exit ──> mac_tx        │
//!               │              receive <───┼── entry <── mac_rx                         │
//!               │                 └─> responder ──PlaceCommand──> place ────────────────┤
//!               │                      └─ regions                  │ CQEs               │
//!               └────────────────────────────────────────────> complete ────────────────┴─> irq
//!
//!  host_reader, host_writer, complete ──> bus_master_gate ──> host_rd, host_wr, irq
//! ```
//!
//! Data of READ responses goes from receive through place too: the requester sends a `ReadResponseCommand`, and
//! place returns a `ResponseNotice` when the data is in host memory. The events of all parts go to
//! [`event_counters`](crate::event_counters), whose counts control reads, and the levels of their pools to
//! [`pool_levels`](crate::pool_levels).
use crate::config::Config;
use crate::event_counters::EventCounters;
use crate::pool_levels::PoolLevels;
use crate::stack::{self, Build, Clocks};
use rnic_blocks::stream::{StreamTx, ValidTx};
use rnic_complete::Complete;
use rnic_control::axi_lite::AxiLite;
use rnic_control::control::{Control, SLAVE_BITS};
use rnic_control::drained::Drained;
use rnic_control::registers::SPEED_BITS;
use rnic_dma::{AddressVector, Gather, GatherMux, Place, PlaceMux, WriteFailures};
use rnic_host::arrivals::ReadWord;
use rnic_host::{BusMaster, HostReader, HostWriter};
use rnic_kernel::prelude::*;
use rnic_kernel::{Design, GenerateError, generate_design};
use rnic_messages::drop_reason::REASON_BITS;
use rnic_messages::frame::ACCEPTED_REQUEST;
use rnic_messages::read::ReadClosed;
use rnic_messages::sizes::LENGTH_BITS;
use rnic_messages::sizes::VECTOR_BITS;
use rnic_messages::transmit::departed_of;
use rnic_packet::assemble::Assembler;
use rnic_packet::crossing::{MacEntry, MacExit, queue_address_bits};
use rnic_packet::mac::{MacReceive, MacTransmit};
use rnic_packet::receive::Receive;
use rnic_protect::RegionMux;
use rnic_protect::RegionTable;
use rnic_requester::requester::Requester;
use rnic_responder::Responder;

/// Name of the top module.
pub const TOP: &str = "rnic";
/// Bits of the tag of a host read.
const TAG: usize = 8;
const TAGS: usize = TAG + 1;
/// log2 of the packets that each receive buffer holds.
const TOKENS: usize = 9;
const TOKEN_COUNT: usize = TOKENS + 1;
/// Parts of the card that must be empty for it to be drained.
const DRAINED_PARTS: usize = 8;

/// The card. `LANES` is `DATA / 8`, `WORD` is `10 - BYTES`. Each receive buffer holds up to `2^ADDRESS` beats, the
/// buffer of host read data `2^CHUNK`, the buffer of payload to send `2^PAYLOAD`, each clock-domain crossing `2^CROSSING`; `COUNT`,
/// `CHUNKS`, `PAYLOADS` and `CROSSINGS` are one more than these.
#[derive(LogicBlock, Registers, Construct)]
#[domain(clock = core_clock, reset = control.core_reset)]
#[new(
    /// Makes a card with these clocks.
    clocks: Clocks,
)]
pub struct Card<
    const DATA: usize,
    const BYTES: usize,
    const LANES: usize,
    const WORD: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
    const PAYLOAD: usize,
    const PAYLOADS: usize,
    const CROSSING: usize,
    const CROSSINGS: usize,
> {
    /// Core clock: of everything except the MAC side of the clock-domain crossings.
    pub core_clock: Signal<In, Clock>,
    /// Synchronous to `core_clock`, active high.
    pub core_reset: Signal<In, Bit>,

    /// AXI4-Lite slave. Bit 24 of an address selects BAR 2 (doorbells) instead of BAR 0 (registers).
    pub s_axil: AxiLite<SLAVE_BITS>,

    /// The function is bus master; synchronous to `core_clock`. From the second cycle after it falls on, no read, write or
    /// interrupt begins. One that is offered then stays until it is taken, and a write that is requested gets its words.
    pub bus_master: Signal<In, Bit>,
    /// A function-level reset is requested; held until `flr_done`. Synchronous to `core_clock`.
    pub flr_request: Signal<In, Bit>,
    /// The card has drained and is reset, as by `control.reset`; stays until `flr_request` falls.
    pub flr_done: Signal<Out, Bit>,

    /// A host read request is valid: 1 to 512 bytes that cross no multiple of 512.
    pub host_rd_req_valid: Signal<Out, Bit>,
    /// The host takes the read request.
    pub host_rd_req_ready: Signal<In, Bit>,
    /// Address of the first byte to read.
    pub host_rd_req_address: Signal<Out, Bits<64>>,
    /// Length of the read in bytes.
    pub host_rd_req_length: Signal<Out, Bits<LENGTH_BITS>>,
    /// Tag of the read; the card uses it again after the last word of its data.
    pub host_rd_req_tag: Signal<Out, Bits<TAG>>,
    /// A word of host read data is valid. Tags may be answered in any order; the card takes every word.
    pub host_rd_data_valid: Signal<In, Bit>,
    /// The word. Bytes are in the lanes of their address.
    pub host_rd_data_data: Signal<In, Bits<DATA>>,
    /// Number of bytes of the read in this word.
    pub host_rd_data_bytes: Signal<In, Bits<BYTES>>,
    /// Last word of its read.
    pub host_rd_data_last: Signal<In, Bit>,
    /// Tag of the read that the word belongs to.
    pub host_rd_data_tag: Signal<In, Bits<TAG>>,
    /// The host failed to read this word.
    pub host_rd_data_error: Signal<In, Bit>,

    /// A host write request is valid: 1 to 512 bytes that cross no multiple of 512.
    pub host_wr_req_valid: Signal<Out, Bit>,
    /// The host takes the write request.
    pub host_wr_req_ready: Signal<In, Bit>,
    /// Address of the first byte to write.
    pub host_wr_req_address: Signal<Out, Bits<64>>,
    /// Length of the write in bytes.
    pub host_wr_req_length: Signal<Out, Bits<LENGTH_BITS>>,
    /// A word of host write data is valid. Words are in the order of the requests, and after the request of their write has been
    /// taken.
    pub host_wr_data_valid: Signal<Out, Bit>,
    /// The host takes the word.
    pub host_wr_data_ready: Signal<In, Bit>,
    /// The word. Bytes are in the lanes of their address.
    pub host_wr_data_data: Signal<Out, Bits<DATA>>,
    /// Last word of its write.
    pub host_wr_data_last: Signal<Out, Bit>,
    /// The oldest host write is done.
    pub host_wr_done_valid: Signal<In, Bit>,
    /// The host refused that write.
    pub host_wr_done_error: Signal<In, Bit>,

    /// An MSI-X interrupt is requested.
    pub irq_valid: Signal<Out, Bit>,
    /// The host interface takes the interrupt.
    pub irq_ready: Signal<In, Bit>,
    /// Vector to raise.
    pub irq_vector: Signal<Out, Bits<VECTOR_BITS>>,

    /// The network port has a link; synchronous to `core_clock`.
    pub link_up: Signal<In, Bit>,
    /// Speed of the port in Mb/s, or zero if it is unknown; synchronous to `core_clock`.
    pub port_speed: Signal<In, Bits<SPEED_BITS>>,
    /// MAC address of the board as a number, the first byte on the wire being the most significant; zero if it has none. Constant
    /// while the card is out of reset.
    pub permanent_mac: Signal<In, Bits<48>>,

    /// Receive clock of the MAC.
    pub mac_rx_clock: Signal<In, Clock>,
    /// Synchronous to `mac_rx_clock`, active high.
    pub mac_rx_reset: Signal<In, Bit>,
    /// A beat of a received frame, without FCS, is valid; the card takes every beat.
    pub mac_rx_tvalid: Signal<In, Bit>,
    /// The beat; the first byte on the wire is in bits 7:0.
    pub mac_rx_tdata: Signal<In, Bits<DATA>>,
    /// Bytes of the beat that belong to the frame; all ones except in the last beat.
    pub mac_rx_tkeep: Signal<In, Bits<LANES>>,
    /// Last beat of its frame.
    pub mac_rx_tlast: Signal<In, Bit>,
    /// In the last beat: the MAC marks the frame as bad.
    pub mac_rx_tuser: Signal<In, Bit>,

    /// Transmit clock of the MAC.
    pub mac_tx_clock: Signal<In, Clock>,
    /// Synchronous to `mac_tx_clock`, active high.
    pub mac_tx_reset: Signal<In, Bit>,
    /// A beat of a frame to send is valid. Frames are without FCS, and not padded to 60 bytes; inside a frame
    /// there are no gaps.
    pub mac_tx_tvalid: Signal<Out, Bit>,
    /// The MAC takes the beat.
    pub mac_tx_tready: Signal<In, Bit>,
    /// The beat; the first byte on the wire is in bits 7:0.
    pub mac_tx_tdata: Signal<Out, Bits<DATA>>,
    /// Bytes of the beat that belong to the frame; all ones except in the last beat.
    pub mac_tx_tkeep: Signal<Out, Bits<LANES>>,
    /// Last beat of its frame.
    pub mac_tx_tlast: Signal<Out, Bit>,
    /// In the last beat: the frame is bad and must not be delivered.
    pub mac_tx_tuser: Signal<Out, Bit>,

    /// For measurements, else unconnected: a received frame has passed all checks, ICRC included.
    pub observe_accepted: Signal<Out, Bit>,

    // The reset by software covers everything except control, the crossings to the MAC, and the counters.
    #[domain(reset = core_reset)]
    #[init(Control::new(DATA as u16, clocks.core_khz))]
    control: Control,
    requester: Requester,
    requester_region_mux: RegionMux,
    requester_regions: RegionTable,
    gather: Gather<DATA, BYTES, PAYLOAD, PAYLOADS>,
    address_vector: AddressVector<DATA, BYTES>,
    assemble: Assembler<DATA, BYTES>,
    #[domain(reset = core_reset)]
    #[init(MacExit::new(clocks.head_start))]
    exit: MacExit<DATA, BYTES, CROSSING, CROSSINGS>,
    mac_transmit: MacTransmit<DATA, BYTES, LANES>,
    #[domain(clock = mac_rx_clock, reset = mac_rx_reset)]
    mac_receive: MacReceive<DATA, BYTES, LANES>,
    #[domain(reset = core_reset)]
    entry: MacEntry<DATA, BYTES, CROSSING, CROSSINGS>,
    receive: Receive<DATA, BYTES, ADDRESS, COUNT, TOKENS, TOKEN_COUNT>,
    responder: Responder,
    responder_regions: RegionTable,
    place_mux: PlaceMux<DATA, BYTES>,
    place: Place<DATA, BYTES>,
    complete: Complete,
    host_reader: HostReader<DATA, BYTES, WORD, TAG, TAGS, CHUNK, CHUNKS>,
    host_writer: HostWriter<DATA, BYTES>,
    bus_master_gate: BusMaster<DATA, TAG>,
    gather_mux: GatherMux,
    write_failures: WriteFailures,
    drained: Drained<DRAINED_PARTS>,
    #[domain(reset = core_reset)]
    counters: EventCounters,
    pool_levels: PoolLevels,
}

impl<
    const DATA: usize,
    const BYTES: usize,
    const LANES: usize,
    const WORD: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
    const PAYLOAD: usize,
    const PAYLOADS: usize,
    const CROSSING: usize,
    const CROSSINGS: usize,
> Logic
    for Card<DATA, BYTES, LANES, WORD, ADDRESS, COUNT, CHUNK, CHUNKS, PAYLOAD, PAYLOADS, CROSSING, CROSSINGS>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();
        self.entry.mac_clock.next = self.mac_rx_clock.val();
        self.exit.mac_clock.next = self.mac_tx_clock.val();
        self.entry.mac_reset.next = self.mac_rx_reset.val();
        self.exit.mac_reset.next = self.mac_tx_reset.val();
        self.entry.restart.next = self.control.core_reset.val();
        self.exit.restart.next = self.control.core_reset.val();

        AxiLite::link(&mut self.s_axil, &mut self.control.axi);

        // The host.
        StreamTx::join(&mut self.host_reader.to_host, &mut self.bus_master_gate.read);
        StreamTx::join(&mut self.host_writer.request, &mut self.bus_master_gate.write);
        StreamTx::join(&mut self.host_writer.words, &mut self.bus_master_gate.word);
        StreamTx::join(&mut self.complete.irq, &mut self.bus_master_gate.interrupt);
        self.bus_master_gate.enable.next = self.bus_master.val();
        self.bus_master_gate.read_ends.next = self.host_rd_data_valid.val() && self.host_rd_data_last.val();
        self.bus_master_gate.write_ends.next = self.host_wr_done_valid.val();
        self.control.may_request.next = self.bus_master_gate.is_open.val();
        self.control.is_cut_off.next = self.bus_master_gate.is_cut_off.val();
        self.control.flr_request.next = self.flr_request.val();
        self.flr_done.next = self.control.flr_done.val();
        self.host_rd_req_valid.next = self.bus_master_gate.to_host.valid.val();
        self.bus_master_gate.to_host.ready.next = self.host_rd_req_ready.val();
        let read = self.bus_master_gate.to_host.beat.val();
        self.host_rd_req_address.next = read.address;
        self.host_rd_req_length.next = read.length;
        self.host_rd_req_tag.next = read.tag;
        self.host_reader.from_host.valid.next = self.host_rd_data_valid.val();
        self.host_reader.from_host.value.next = ReadWord::<DATA, BYTES, TAG> {
            data: self.host_rd_data_data.val(),
            bytes: self.host_rd_data_bytes.val(),
            last: self.host_rd_data_last.val(),
            error: self.host_rd_data_error.val(),
            tag: self.host_rd_data_tag.val(),
        };
        let write = self.bus_master_gate.request.beat.val();
        self.host_wr_req_valid.next = self.bus_master_gate.request.valid.val();
        self.host_wr_req_address.next = write.address;
        self.host_wr_req_length.next = write.length;
        self.bus_master_gate.request.ready.next = self.host_wr_req_ready.val();
        let word = self.bus_master_gate.words.beat.val();
        self.host_wr_data_valid.next = self.bus_master_gate.words.valid.val();
        self.host_wr_data_data.next = word.data;
        self.host_wr_data_last.next = word.last;
        self.bus_master_gate.words.ready.next = self.host_wr_data_ready.val();
        self.host_writer.done_valid.next = self.host_wr_done_valid.val();
        self.host_writer.done_error.next = self.host_wr_done_error.val();
        self.irq_valid.next = self.bus_master_gate.irq.valid.val();
        self.irq_vector.next = self.bus_master_gate.irq.beat.val();
        self.bus_master_gate.irq.ready.next = self.irq_ready.val();

        // Setup, doorbells and tables.
        StreamTx::join(&mut self.control.setup[0], &mut self.requester.setup_fetch);
        StreamTx::join(&mut self.control.setup[1], &mut self.requester.setup_parse);
        StreamTx::join(&mut self.control.setup[2], &mut self.responder.setup_admit);
        StreamTx::join(&mut self.control.setup[3], &mut self.responder.setup_prefetch);
        StreamTx::join(&mut self.control.setup[4], &mut self.responder.setup_ack);
        StreamTx::join(&mut self.control.setup[5], &mut self.address_vector.setup);
        StreamTx::join(&mut self.control.setup[6], &mut self.responder.setup_read);
        StreamTx::join(&mut self.control.srq_setup[0], &mut self.responder.srq_setup_admit);
        StreamTx::join(&mut self.control.srq_setup[1], &mut self.responder.srq_setup_prefetch);
        self.requester.enable.next = self.control.enable.val();
        self.responder.enable.next = self.control.enable.val();
        self.requester.timer_unit.next = self.control.timer_unit.val();
        ValidTx::join(&mut self.control.source_address_write, &mut self.requester.source_address_write);
        ValidTx::join(&mut self.control.source_address_write, &mut self.responder.source_address_write);
        ValidTx::join(&mut self.control.messages.send_posted, &mut self.requester.send_posted);
        ValidTx::join(&mut self.control.messages.receive_posted, &mut self.responder.receive_posted);
        ValidTx::join(&mut self.control.messages.completions_read, &mut self.complete.completions_read);
        ValidTx::join(&mut self.control.messages.events_read, &mut self.complete.events_read);
        ValidTx::join(&mut self.control.completion_queue_setup, &mut self.complete.completion_queue_setup);
        ValidTx::join(&mut self.control.event_queue_setup, &mut self.complete.event_queue_setup);
        ValidTx::join(&mut self.control.source_address_write, &mut self.address_vector.source_address_write);
        StreamTx::join(&mut self.requester.invalidate, &mut self.control.invalidate[0]);
        StreamTx::join(&mut self.control.invalidated[0], &mut self.requester.invalidated);
        StreamTx::join(&mut self.responder.invalidate, &mut self.control.invalidate[1]);
        StreamTx::join(&mut self.control.invalidated[1], &mut self.responder.invalidated);
        ValidTx::join(&mut self.control.region_write, &mut self.requester_regions.write);
        ValidTx::join(&mut self.control.region_write, &mut self.responder_regions.write);
        ValidTx::join(&mut self.control.page_entry_write, &mut self.host_reader.page_write);
        ValidTx::join(&mut self.control.page_entry_write, &mut self.host_writer.page_write);
        self.control.probed_send.next = self.requester.probed.val();
        self.control.probed_busy.next = self.requester.probed_busy.val();
        self.control.probed_receive.next = self.responder.probed.val();
        self.control.in_flight[0].next = self.requester.in_flight.val();
        self.control.in_flight[1].next = self.responder.in_flight.val();
        self.control.in_flight[2].next = self.responder.read_in_flight.val();
        self.control.in_flight[3].next = self.gather.in_flight.val();
        self.control.in_flight[4].next = self.place.in_flight.val();
        self.control.in_flight[5].next = self.host_writer.in_flight.val();
        self.control.in_flight[6].next = self.responder.atomics_in_flight.val();
        self.drained.in_flight[0].next = self.requester.in_flight.val();
        self.drained.in_flight[1].next = self.gather.in_flight.val();
        self.drained.in_flight[2].next = self.responder.in_flight.val();
        self.drained.in_flight[3].next = self.place.in_flight.val();
        self.drained.in_flight[4].next = self.host_writer.in_flight.val();
        self.drained.in_flight[5].next = self.host_reader.in_flight.val();
        self.drained.in_flight[6].next = self.responder.read_in_flight.val();
        self.drained.in_flight[7].next = self.responder.atomics_in_flight.val();
        // An answer that comes after a reset would pass for that of another read.
        let owes_answers = self.host_reader.quarantined.val().any();
        self.control.drained.next =
            self.drained.is_drained.val() && self.complete.is_idle.val() && !owes_answers;
        self.control.reads_drained.next = self.host_reader.reads_in_flight.val() == 0 && !owes_answers;
        self.host_reader.limit.next = self.control.host_limit.val();
        self.host_writer.limit.next = self.control.host_limit.val();
        self.host_reader.pauses.next = !self.bus_master_gate.is_open.val();
        self.host_writer.pauses.next = !self.bus_master_gate.is_open.val();
        StreamTx::join(&mut self.requester.failure, &mut self.control.notice[0]);
        StreamTx::join(&mut self.responder.notice, &mut self.control.notice[1]);
        StreamTx::join(&mut self.complete.failure, &mut self.control.notice[2]);
        StreamTx::join(&mut self.responder.srq_limit, &mut self.control.srq_limit);

        // Host memory: reads and writes.
        StreamTx::join(&mut self.requester.wqe_read, &mut self.host_reader.sq_read);
        ValidTx::join(&mut self.host_reader.sq_slot, &mut self.requester.wqe_slot);
        StreamTx::join(&mut self.responder.receive_read, &mut self.host_reader.rq_read);
        ValidTx::join(&mut self.host_reader.rq_slot, &mut self.responder.receive_slot);
        StreamTx::join(&mut self.control.admin.read, &mut self.host_reader.admin_read);
        ValidTx::join(&mut self.host_reader.admin_slot, &mut self.control.admin.slot);
        StreamTx::join(&mut self.responder.atomics_read, &mut self.host_reader.atomics_read);
        ValidTx::join(&mut self.host_reader.atomics_word, &mut self.responder.atomics_word);
        StreamTx::join(&mut self.gather.read, &mut self.host_reader.payload_read);
        StreamTx::join(&mut self.host_reader.payload, &mut self.gather.from_host);
        StreamTx::join(&mut self.place.write, &mut self.host_writer.payload);
        StreamTx::join(&mut self.complete.write, &mut self.host_writer.completion);
        StreamTx::join(&mut self.control.admin.write, &mut self.host_writer.admin);
        StreamTx::join(&mut self.responder.atomics_write, &mut self.host_writer.atomics);
        self.responder.atomics_done.next = self.host_writer.atomics_done.val();
        self.responder.atomics_failed.next = self.host_writer.atomics_failed.val();
        self.place.payload_done_count.next = self.host_writer.payload_done_count.val();
        self.place.payload_failed.next = self.host_writer.payload_failed.val();
        self.responder.done_count.next = self.host_writer.payload_done_count.val();
        self.complete.write_done.next = self.host_writer.completion_done_count.val();
        self.control.admin.done_count.next = self.host_writer.admin_done_count.val();
        StreamTx::join(&mut self.host_writer.write_failure, &mut self.write_failures.failure);
        StreamTx::join(&mut self.write_failures.payload, &mut self.responder.write_failure);
        self.control.admin.write_failed.next = self.write_failures.answer.val();
        self.control.host_write_error.next = self.write_failures.lost_event.val();
        ValidTx::join(&mut self.write_failures.cqe, &mut self.complete.refused);
        self.control.lost_read_tag.next =
            self.host_reader.is_unexpected.val() || self.host_reader.has_lost_half.val();
        self.control.lost_write.next =
            self.host_writer.is_unexpected.val() || self.host_writer.is_overdue.val();

        // Requests, from doorbell to wire.
        StreamTx::join(&mut self.requester.access_request, &mut self.requester_region_mux.request[0]);
        StreamTx::join(&mut self.requester_region_mux.answer[0], &mut self.requester.access_answer);
        StreamTx::join(
            &mut self.requester.response_access_request,
            &mut self.requester_region_mux.request[1],
        );
        StreamTx::join(&mut self.requester_region_mux.answer[1], &mut self.requester.response_access_answer);
        StreamTx::join(&mut self.requester_region_mux.table_request, &mut self.requester_regions.request);
        StreamTx::join(&mut self.requester_regions.answer, &mut self.requester_region_mux.table_answer);
        StreamTx::join(&mut self.requester.gather, &mut self.gather_mux.requester);
        StreamTx::join(&mut self.responder.gather, &mut self.gather_mux.responder);
        StreamTx::join(&mut self.gather_mux.command, &mut self.gather.command);
        StreamTx::join(&mut self.requester.inline_slot, &mut self.gather.inline_slot);
        StreamTx::join(&mut self.gather.failure, &mut self.gather_mux.failure);
        StreamTx::join(&mut self.gather_mux.requester_failure, &mut self.requester.gather_failure);
        StreamTx::join(&mut self.gather_mux.responder_failure, &mut self.responder.read_lost);
        // The address vector stage keeps the order of what it takes, so an ACK that is made now leaves after
        // this packet.
        let packet = self.gather.token.beat.val();
        let is_launched = self.gather.token.valid.val() && self.address_vector.request.ready.val();
        self.address_vector.request.beat.next = packet;
        self.requester.departed.next = departed_of(packet, is_launched);
        ValidTx::join(&mut self.requester.issued_psn, &mut self.address_vector.frontier);
        self.address_vector.request.valid.next = self.gather.token.valid.val();
        self.gather.token.ready.next = self.address_vector.request.ready.val();
        self.responder.read_closed.value.next =
            ReadClosed { queue_pair: packet.queue_pair, generation: packet.generation };
        self.responder.read_closed.valid.next = is_launched && packet.is_response && packet.ends_response;
        StreamTx::join(&mut self.gather.payload, &mut self.address_vector.payload);
        StreamTx::join(&mut self.responder.ack, &mut self.address_vector.reply);
        StreamTx::join(&mut self.address_vector.token, &mut self.assemble.from_token);
        StreamTx::join(&mut self.address_vector.payload_out, &mut self.assemble.from_payload);
        let frame = self.assemble.to_mac.beat.val();
        let leaves = self.assemble.to_mac.valid.val() && self.exit.rx.ready.val();
        self.exit.rx.beat.next = frame;
        self.exit.rx.valid.next = self.assemble.to_mac.valid.val();
        self.assemble.to_mac.ready.next = self.exit.rx.ready.val();
        self.control.sends.next = self.assemble.to_mac.valid.val();
        self.control.port.sent_frame.next = leaves && frame.last;
        self.control.port.sent_bytes.next = select(leaves, bit_cast::<16, BYTES>(frame.bytes), bits::<16>(0));
        StreamTx::join(&mut self.exit.tx, &mut self.mac_transmit.from_assemble);
        self.mac_tx_tvalid.next = self.mac_transmit.tvalid.val();
        self.mac_tx_tdata.next = self.mac_transmit.tdata.val();
        self.mac_tx_tkeep.next = self.mac_transmit.tkeep.val();
        self.mac_tx_tlast.next = self.mac_transmit.tlast.val();
        self.mac_tx_tuser.next = self.mac_transmit.tuser.val();
        self.mac_transmit.tready.next = self.mac_tx_tready.val();

        // Packets from the wire, to host memory and to completions.
        self.mac_receive.tvalid.next = self.mac_rx_tvalid.val();
        self.mac_receive.tdata.next = self.mac_rx_tdata.val();
        self.mac_receive.tkeep.next = self.mac_rx_tkeep.val();
        self.mac_receive.tlast.next = self.mac_rx_tlast.val();
        self.mac_receive.tuser.next = self.mac_rx_tuser.val();
        self.entry.beat.next = self.mac_receive.beat.val();
        self.entry.valid.next = self.mac_receive.valid.val();
        ValidTx::join(&mut self.entry.received, &mut self.receive.from_mac);
        self.receive.enable.next = self.control.enable.val();
        self.receive.own_mac.next = self.control.own_mac.val();
        self.receive.promiscuous.next = self.control.promiscuous.val();
        self.receive.accept_multicast.next = self.control.accept_multicast.val();
        self.receive.counter_latch.next = self.control.counters.latch.val();
        self.receive.counter_index.next = self.control.counters.frame_index.val();
        self.control.counters.frame_value.next = self.receive.counter.val();
        ValidTx::join(&mut self.receive.outcome, &mut self.control.port.outcome);
        self.observe_accepted.next = self.receive.outcome.valid.val()
            & (self.receive.outcome.value.val().number >= bits::<REASON_BITS>(ACCEPTED_REQUEST));
        StreamTx::join(&mut self.receive.request_token, &mut self.responder.requests);
        StreamTx::join(&mut self.place_mux.reference, &mut self.receive.reference);
        StreamTx::join(&mut self.receive.request_payload, &mut self.place_mux.request_payload);
        StreamTx::join(&mut self.receive.response_token, &mut self.requester.responses);
        StreamTx::join(&mut self.receive.response_payload, &mut self.place_mux.response_payload);
        StreamTx::join(&mut self.responder.access_request, &mut self.responder_regions.request);
        StreamTx::join(&mut self.responder_regions.answer, &mut self.responder.access_answer);
        StreamTx::join(&mut self.responder.place, &mut self.place_mux.request);
        StreamTx::join(&mut self.requester.place, &mut self.place_mux.response);
        StreamTx::join(&mut self.place_mux.command, &mut self.place.command);
        StreamTx::join(&mut self.place_mux.payload, &mut self.place.payload);
        StreamTx::join(&mut self.place.notice, &mut self.place_mux.notice);
        StreamTx::join(&mut self.place_mux.ack, &mut self.responder.place_reply);
        StreamTx::join(&mut self.place_mux.returned, &mut self.requester.returned);
        StreamTx::join(&mut self.requester.completion, &mut self.complete.from_requester);
        StreamTx::join(&mut self.place.cqe, &mut self.complete.from_responder);
        StreamTx::join(&mut self.control.event, &mut self.complete.event);
        self.complete.interrupt_mask.next = self.control.interrupt.mask.val();
        self.complete.interrupt_pending_clear.next = self.control.interrupt.pending_clear.val();
        self.complete.interrupt_moderation_write.next = self.control.interrupt.moderation_write.val();
        self.complete.interrupt_moderation_vector.next = self.control.interrupt.moderation_vector.val();
        self.complete.interrupt_moderation_period.next = self.control.interrupt.moderation_period.val();
        self.control.interrupt.pending.next = self.complete.interrupt_pending.val();

        // Counters.
        self.counters.requester.next = self.requester.counts.val();
        self.counters.address_vector.next = self.address_vector.counts.val();
        self.counters.responder.next = self.responder.counts.val();
        self.counters.complete.next = self.complete.counts.val();
        self.counters.host_reader.next = self.host_reader.counts.val();
        self.counters.host_writer.next = self.host_writer.counts.val();
        self.counters.control.next = self.control.counts.val();
        self.counters.latch.next = self.control.counters.latch.val();
        self.counters.index.next = self.control.counters.event_index.val();
        self.control.counters.event_value.next = self.counters.value.val();
        self.control.counters.is_latching.next = self.counters.is_latching.val();

        // Levels of pools.
        self.pool_levels.host_reader.next = self.host_reader.pools.val();
        self.pool_levels.host_writer.next = self.host_writer.pools.val();
        self.pool_levels.receive.next = self.receive.pools.val();
        self.pool_levels.responder.next = self.responder.pools.val();
        self.pool_levels.requester.next = self.requester.pools.val();
        self.pool_levels.gather.next = self.gather.pools.val();
        self.pool_levels.place.next = self.place.pools.val();
        self.pool_levels.complete.next = self.complete.pools.val();
        self.pool_levels.control.next = self.control.pools.val();
        self.pool_levels.index.next = self.control.counters.pool_index.val();
        self.control.counters.pool_level.next = self.pool_levels.value.val();

        // Status that no block reports: the board knows its port.
        self.control.port.link_up.next = self.link_up.val();
        self.control.port.speed.next = self.port_speed.val();
        self.control.port.permanent_mac.next = self.permanent_mac.val();
    }
}

/// Generates the card of a checked configuration, module by module.
///
/// # Errors
/// [`GenerateError`] if a block uses a construct that has no exact Verilog.
///
/// # Panics
/// If the configuration was not checked.
pub fn generate(config: &Config) -> Result<Design, GenerateError> {
    stack::run(builder(config.datapath.width_bits), config)
}

/// Selects the card of a width, with the largest receive buffers: how much of them it has is one of the sizes. Widths and depths
/// are const parameters, so every width that can be configured is compiled. The buffers of host read data and of payload to send
/// have 32 KiB each.
fn builder(width_bits: u32) -> Build {
    match width_bits {
        64 => build::<64, 4, 8, 6, 14, 15, 12, 13, 12, 13, 7, 8>,
        128 => build::<128, 5, 16, 5, 13, 14, 11, 12, 11, 12, 7, 8>,
        256 => build::<256, 6, 32, 4, 12, 13, 10, 11, 10, 11, 7, 8>,
        512 => build::<512, 7, 64, 3, 11, 12, 9, 10, 9, 10, 6, 7>,
        _ => panic!("the configuration was not checked"),
    }
}

fn build<
    const DATA: usize,
    const BYTES: usize,
    const LANES: usize,
    const WORD: usize,
    const ADDRESS: usize,
    const COUNT: usize,
    const CHUNK: usize,
    const CHUNKS: usize,
    const PAYLOAD: usize,
    const PAYLOADS: usize,
    const CROSSING: usize,
    const CROSSINGS: usize,
>(
    clocks: Clocks,
) -> Result<Design, GenerateError> {
    const { assert!(CROSSING == queue_address_bits(DATA), "the clocks are checked against this depth") };
    let mut card = Card::<
        DATA,
        BYTES,
        LANES,
        WORD,
        ADDRESS,
        COUNT,
        CHUNK,
        CHUNKS,
        PAYLOAD,
        PAYLOADS,
        CROSSING,
        CROSSINGS,
    >::new(clocks);
    generate_design(&mut card, TOP)
}
