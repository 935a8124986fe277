//! The packet path as a design of its own: the part of the card between its MAC and its engines, with the streams of the
//! engines as ports. This block only connects others.
//!
//! ```text
//!            ┌────────────┐   ┌───────────┐ own address, filter, enable, latch
//!  s_axil ──>│ slave      ├──>│ registers ├───────────────┐
//!            └────────────┘   └───────────┘<── counters ──┤
//!            ┌────────────┐   ┌───────────────────────────▼─┐
//!  mac_rx ──>│ mac_receive├──>│ receive: parse, ICRC, strip,├──> to_responder  (token, payload)
//!            └────────────┘   │ buffers, counters           ├──> to_requester  (token, payload)
//!                             └─────────────────────────────┘
//!            ┌────────────┐   ┌─────────────────────────────┐
//!  mac_tx <──┤mac_transmit│<──┤ assemble: headers, join, pad,│<── transmit      (token, payload)
//!            └────────────┘   │ ICRC                        │
//!                             └─────────────────────────────┘
//! ```
//!
//! Only tests use it, in the place of the engines. The whole card is [`rnic_hdl::card`].
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]
use crate::registers::PacketRegisters;
use rnic_blocks::stream::{Beat, StreamRx, StreamTx};
use rnic_control::axi_lite::{AxiLite, AxiLiteSlave};
use rnic_control::register_map::ADDRESS_BITS;
use rnic_hdl::config::Config;
use rnic_hdl::stack::{self, Build, Clocks};
use rnic_kernel::prelude::*;
use rnic_kernel::{Design, GenerateError, generate_design};
use rnic_messages::PacketToken;
use rnic_messages::receive::PayloadReference;
use rnic_messages::transmit::TransmitToken;
use rnic_packet::assemble::Assembler;
use rnic_packet::mac::{MacReceive, MacTransmit};
use rnic_packet::receive::Receive;

/// Name of the top module.
pub const TOP: &str = "packet_path";
/// Packets that each receive buffer holds, as a power of two.
const TOKENS: usize = 9;
const TOKEN_COUNT: usize = TOKENS + 1;

/// A design that parses and assembles frames. `LANES` is `DATA / 8`; each receive buffer holds
/// `2^ADDRESS` beats, and `COUNT` is `ADDRESS + 1`.
#[clocked(reset)]
#[derive(LogicBlock, Registers, Construct)]
#[new(
    /// Makes a packet path whose core clock has `clock_khz`.
    clock_khz: u32,
)]
pub struct PacketPath<
    const DATA: usize,
    const BYTES: usize,
    const LANES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
> {
    /// Register slave; addresses are those of BAR 0.
    pub s_axil: AxiLite<ADDRESS_BITS>,

    /// Frames from the MAC, without FCS; the card takes every beat.
    pub mac_rx_tvalid: Signal<In, Bit>,
    /// Bytes of a received beat, the first in the lowest lane.
    pub mac_rx_tdata: Signal<In, Bits<DATA>>,
    /// Lanes of a received beat that hold bytes.
    pub mac_rx_tkeep: Signal<In, Bits<LANES>>,
    /// Last beat of a received frame.
    pub mac_rx_tlast: Signal<In, Bit>,
    /// The MAC marks the frame as bad; valid with the last beat.
    pub mac_rx_tuser: Signal<In, Bit>,

    /// Frames to the MAC, without FCS, and not padded to the 60 bytes of Ethernet.
    pub mac_tx_tvalid: Signal<Out, Bit>,
    /// The MAC takes the beat.
    pub mac_tx_tready: Signal<In, Bit>,
    /// Bytes of a sent beat, the first in the lowest lane.
    pub mac_tx_tdata: Signal<Out, Bits<DATA>>,
    /// Lanes of a sent beat that hold bytes.
    pub mac_tx_tkeep: Signal<Out, Bits<LANES>>,
    /// Last beat of a sent frame.
    pub mac_tx_tlast: Signal<Out, Bit>,
    /// Error mark of the frame, valid with its last beat.
    pub mac_tx_tuser: Signal<Out, Bit>,

    /// Requests of peers: their headers.
    pub to_responder_token: StreamTx<PacketToken>,
    /// Their payload, in the same order; none for a packet without payload.
    pub to_responder_payload: StreamTx<Beat<DATA, BYTES>>,
    /// Answers to our requests, and congestion notifications: their headers.
    pub to_requester_token: StreamTx<PacketToken>,
    /// Their payload, in the same order; none for a packet without payload.
    pub to_requester_payload: StreamTx<Beat<DATA, BYTES>>,

    /// Packets to send: their headers.
    pub transmit_token: StreamRx<TransmitToken>,
    /// Their payload, in the same order; none for a packet without payload.
    pub transmit_payload: StreamRx<Beat<DATA, BYTES>>,

    // The slave answers even while all else is being reset by software.
    slave: AxiLiteSlave<ADDRESS_BITS>,
    #[init(PacketRegisters::new(DATA as u16, clock_khz))]
    registers: PacketRegisters,
    #[domain(reset = registers.core_reset)]
    mac_receive: MacReceive<DATA, BYTES, LANES>,
    #[domain(reset = registers.core_reset)]
    receive: Receive<DATA, BYTES, ADDRESS, COUNT, TOKENS, TOKEN_COUNT>,
    #[domain(reset = registers.core_reset)]
    assemble: Assembler<DATA, BYTES>,
    mac_transmit: MacTransmit<DATA, BYTES, LANES>,
}

impl<const DATA: usize, const BYTES: usize, const LANES: usize, const ADDRESS: usize, const COUNT: usize>
    Logic for PacketPath<DATA, BYTES, LANES, ADDRESS, COUNT>
{
    #[kernel]
    fn update(&mut self) {
        self.hold_registers();

        AxiLite::<ADDRESS_BITS>::link(&mut self.s_axil, &mut self.slave.axi);

        self.registers.write.next = self.slave.write.val();
        self.registers.write_address.next = self.slave.write_address.val();
        self.registers.write_data.next = self.slave.write_data.val();
        self.registers.write_strobe.next = self.slave.write_strobe.val();
        self.registers.read_address.next = self.slave.read_address.val();
        self.slave.read_data.next = self.registers.read_data.val();

        self.mac_receive.tvalid.next = self.mac_rx_tvalid.val();
        self.mac_receive.tdata.next = self.mac_rx_tdata.val();
        self.mac_receive.tkeep.next = self.mac_rx_tkeep.val();
        self.mac_receive.tlast.next = self.mac_rx_tlast.val();
        self.mac_receive.tuser.next = self.mac_rx_tuser.val();
        self.receive.from_mac.value.next = self.mac_receive.beat.val();
        self.receive.from_mac.valid.next = self.mac_receive.valid.val();

        self.receive.enable.next = self.registers.enable.val();
        self.receive.own_mac.next = self.registers.own_mac.val();
        self.receive.promiscuous.next = self.registers.promiscuous.val();
        self.receive.accept_multicast.next = self.registers.accept_multicast.val();
        self.receive.counter_latch.next = self.registers.counter_latch.val();
        self.receive.counter_index.next = self.registers.counter_index.val();
        self.registers.counter.next = self.receive.counter.val();
        self.registers.outcome.value.next = self.receive.outcome.value.val();
        self.registers.outcome.valid.next = self.receive.outcome.valid.val();
        // The payload of a request is asked for when its token is taken.
        let token = self.receive.request_token.beat.val();
        let has_token = self.receive.request_token.valid.val();
        let may_ask = self.receive.reference.ready.val();
        let is_taken = self.to_responder_token.ready.val();
        self.to_responder_token.beat.next = token;
        self.to_responder_token.valid.next = has_token && may_ask;
        self.receive.request_token.ready.next = is_taken && may_ask;
        self.receive.reference.valid.next = has_token && is_taken && token.payload_bytes.any();
        self.receive.reference.beat.next = PayloadReference {
            queue_pair: token.queue_pair,
            first_cell: token.first_cell,
            payload_bytes: token.payload_bytes,
        };
        StreamTx::<Beat<DATA, BYTES>>::link(
            &mut self.to_responder_payload,
            &mut self.receive.request_payload,
        );
        StreamTx::<PacketToken>::link(&mut self.to_requester_token, &mut self.receive.response_token);
        StreamTx::<Beat<DATA, BYTES>>::link(
            &mut self.to_requester_payload,
            &mut self.receive.response_payload,
        );

        StreamRx::<TransmitToken>::link(&mut self.transmit_token, &mut self.assemble.from_token);
        StreamRx::<Beat<DATA, BYTES>>::link(&mut self.transmit_payload, &mut self.assemble.from_payload);
        StreamTx::<Beat<DATA, BYTES>>::join(&mut self.assemble.to_mac, &mut self.mac_transmit.from_assemble);
        self.mac_tx_tvalid.next = self.mac_transmit.tvalid.val();
        self.mac_transmit.tready.next = self.mac_tx_tready.val();
        self.mac_tx_tdata.next = self.mac_transmit.tdata.val();
        self.mac_tx_tkeep.next = self.mac_transmit.tkeep.val();
        self.mac_tx_tlast.next = self.mac_transmit.tlast.val();
        self.mac_tx_tuser.next = self.mac_transmit.tuser.val();
        self.registers.sent_frame.next = self.mac_transmit.sent_frame.val();
        self.registers.sent_bytes.next = self.mac_transmit.sent_bytes.val();
    }
}

/// Generates the packet path of a checked configuration, module by module.
///
/// # Errors
/// [`GenerateError`] if a block says something that has no exact Verilog.
///
/// # Panics
/// If the configuration was not checked.
pub fn generate(config: &Config) -> Result<Design, GenerateError> {
    stack::run(builder(config.datapath.width_bits), config)
}

/// Widths are types, so every packet path that can be chosen is compiled.
fn builder(width_bits: u32) -> Build {
    match width_bits {
        64 => build::<64, 4, 8, 14, 15>,
        128 => build::<128, 5, 16, 13, 14>,
        256 => build::<256, 6, 32, 12, 13>,
        512 => build::<512, 7, 64, 11, 12>,
        _ => panic!("the configuration was not checked: {width_bits} bits"),
    }
}

fn build<
    const DATA: usize,
    const BYTES: usize,
    const LANES: usize,
    const ADDRESS: usize,
    const COUNT: usize,
>(
    clocks: Clocks,
) -> Result<Design, GenerateError> {
    generate_design(&mut PacketPath::<DATA, BYTES, LANES, ADDRESS, COUNT>::new(clocks.core_khz), TOP)
}
