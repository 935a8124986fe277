//! The verilated packet path, with a model of the MAC on one side and of the card's engines on the other.
//!
//! ```text
//!            frames ─> mac_rx ─┐                       ┌─> to_responder ─> received
//!                              ├─ verilated packet path┼─> to_requester ─> received
//!  sent <─ frames <─ mac_tx <──┘                       └<─ transmit <───── packets
//!                                     s_axil ── registers
//! ```
//!
//! One call of [`PacketPath::step`] is one cycle of the core clock. Every source and sink can be stalled at random; one seed
//! decides all stalls, so that a run can be repeated exactly.
use crate::design;
use crate::token::{TOKEN_BITS, Token};
use crate::words;
use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rnic_hdl::config::Config;
use rnic_packet::entry_share::SHARE_SWEEP_CYCLES;
use std::collections::VecDeque;
use verilator_sys::{AnyPort, Instance, Model, ModelOptions, Port};

/// Stalls, as probabilities per cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalls {
    /// Probability that the MAC offers no beat, and that a transmit token or payload is late.
    pub source: f64,
    /// Probability that the MAC or the engines are not ready.
    pub sink: f64,
}

impl Stalls {
    /// No stalls, source stalls, sink stalls, both.
    pub const FOUR_WAYS: [Stalls; 4] = [
        Stalls { source: 0.0, sink: 0.0 },
        Stalls { source: 0.4, sink: 0.0 },
        Stalls { source: 0.0, sink: 0.4 },
        Stalls { source: 0.4, sink: 0.4 },
    ];
}

/// A frame from the MAC, without FCS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacFrame {
    /// Bytes from the destination address on.
    pub bytes: Vec<u8>,
    /// The MAC marks the frame as bad (`tuser`).
    pub error: bool,
}

/// Destination of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes requests.
    Responder,
    /// Takes responses, acknowledgements, and congestion notifications.
    Requester,
}

/// A packet that the card accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Side of the card that takes the packet.
    pub role: Role,
    /// Headers of the packet.
    pub token: Token,
    /// Payload without pad.
    pub payload: Vec<u8>,
    /// Cycle in which its last beat was taken.
    pub cycle: u64,
}

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Headers; `payload_bytes` must be the length of the payload.
    pub token: Token,
    /// Payload without pad.
    pub payload: Vec<u8>,
    /// Byte position of the payload in its first beat.
    pub payload_offset: usize,
}

/// A frame that the card sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes from the destination address on, without FCS and without Ethernet padding.
    pub bytes: Vec<u8>,
    /// Cycles in which its first and its last beat were taken.
    pub cycles: (u64, u64),
}

/// An output stream: `beat`, `valid`, `ready`.
struct Output {
    beat: AnyPort,
    valid: Port<u8>,
    ready: Port<u8>,
    offered: Vec<u32>,
}

impl Output {
    fn new(model: &Model, name: &str) -> Result<Output> {
        let beat = model.any_port(&format!("{name}_beat"))?;
        Ok(Output {
            beat,
            valid: model.port(&format!("{name}_valid"))?,
            ready: model.port(&format!("{name}_ready"))?,
            offered: vec![0; beat.words()],
        })
    }

    /// Returns whether a beat transfers in this cycle, which is then in `offered`. The inputs must have settled.
    fn take(&mut self, instance: &Instance) -> bool {
        let moves = instance.get(self.valid) == 1 && instance.get(self.ready) == 1;
        if moves {
            instance.read_words(self.beat, &mut self.offered);
        }
        moves
    }
}

/// An input stream.
struct Input {
    beat: AnyPort,
    valid: Port<u8>,
    ready: Port<u8>,
}

impl Input {
    fn new(model: &Model, name: &str) -> Result<Input> {
        Ok(Input {
            beat: model.any_port(&format!("{name}_beat"))?,
            valid: model.port(&format!("{name}_valid"))?,
            ready: model.port(&format!("{name}_ready"))?,
        })
    }

    fn moves(&self, instance: &Instance) -> bool {
        instance.get(self.valid) == 1 && instance.get(self.ready) == 1
    }
}

/// Streams to one destination, and the packet that is being received from them.
struct Receiver {
    role: Role,
    token: Output,
    payload: Output,
    /// Tokens whose payload is incomplete.
    waiting: VecDeque<Token>,
    /// Payload received so far, of these tokens and of later ones.
    bytes: VecDeque<u8>,
}

/// Ports of the MAC.
struct MacPorts {
    rx_valid: Port<u8>,
    rx_data: AnyPort,
    rx_keep: AnyPort,
    rx_last: Port<u8>,
    rx_error: Port<u8>,
    tx_valid: Port<u8>,
    tx_ready: Port<u8>,
    tx_data: AnyPort,
    tx_keep: AnyPort,
    tx_last: Port<u8>,
    tx_error: Port<u8>,
}

/// Ports of the register slave.
struct RegisterPorts {
    awaddr: AnyPort,
    awvalid: Port<u8>,
    awready: Port<u8>,
    wdata: Port<u64>,
    wstrb: Port<u8>,
    wvalid: Port<u8>,
    wready: Port<u8>,
    bresp: Port<u8>,
    bvalid: Port<u8>,
    bready: Port<u8>,
    araddr: AnyPort,
    arvalid: Port<u8>,
    arready: Port<u8>,
    rdata: Port<u64>,
    rresp: Port<u8>,
    rvalid: Port<u8>,
    rready: Port<u8>,
}

/// Cycles within which the register slave must answer.
const REGISTER_CYCLES_MAX: u64 = 64;

/// A verilated packet path with the models around it.
pub struct PacketPath {
    instance: Instance,
    clock: Port<u8>,
    reset: Port<u8>,
    mac: MacPorts,
    registers: RegisterPorts,
    receivers: [Receiver; 2],
    transmit_token: Input,
    transmit_payload: Input,
    width_bytes: usize,
    stalls: Stalls,
    random: ChaCha8Rng,
    cycle: u64,

    frames: VecDeque<MacFrame>,
    frame_offset: usize,
    tokens: VecDeque<Transmit>,
    payloads: VecDeque<PayloadBeats>,
    sending: Vec<u8>,
    sending_since: u64,
    is_token_offered: bool,
    is_payload_offered: bool,
    received: Vec<Received>,
    sent: Vec<Sent>,
}

/// Payload of one packet that is being sent.
struct PayloadBeats {
    bytes: Vec<u8>,
    /// Byte position of the next byte in its beat.
    lane: usize,
    given: usize,
}

/// Generates and verilates the packet path of a configuration.
///
/// # Errors
/// If the configuration cannot be generated, or Verilator is missing or fails.
pub fn build_model(config: &Config, options: &ModelOptions) -> Result<Model> {
    let verilog = design::generate(config)?.verilog();
    Ok(Model::build(design::TOP, &verilog, options)?)
}

impl PacketPath {
    /// Makes an instance of a model from [`build_model`], and resets it. `seed` decides the stalls.
    ///
    /// # Errors
    /// If the model is not a packet path.
    pub fn new(model: &Model, stalls: Stalls, seed: u64) -> Result<PacketPath> {
        let receiver = |role, name: &str| -> Result<Receiver> {
            Ok(Receiver {
                role,
                token: Output::new(model, &format!("{name}_token"))?,
                payload: Output::new(model, &format!("{name}_payload"))?,
                waiting: VecDeque::new(),
                bytes: VecDeque::new(),
            })
        };
        let rx_data = model.any_port("mac_rx_tdata")?;
        let mac = MacPorts {
            rx_valid: model.port("mac_rx_tvalid")?,
            rx_data,
            rx_keep: model.any_port("mac_rx_tkeep")?,
            rx_last: model.port("mac_rx_tlast")?,
            rx_error: model.port("mac_rx_tuser")?,
            tx_valid: model.port("mac_tx_tvalid")?,
            tx_ready: model.port("mac_tx_tready")?,
            tx_data: model.any_port("mac_tx_tdata")?,
            tx_keep: model.any_port("mac_tx_tkeep")?,
            tx_last: model.port("mac_tx_tlast")?,
            tx_error: model.port("mac_tx_tuser")?,
        };
        let registers = RegisterPorts {
            awaddr: model.any_port("s_axil_awaddr")?,
            awvalid: model.port("s_axil_awvalid")?,
            awready: model.port("s_axil_awready")?,
            wdata: model.port("s_axil_wdata")?,
            wstrb: model.port("s_axil_wstrb")?,
            wvalid: model.port("s_axil_wvalid")?,
            wready: model.port("s_axil_wready")?,
            bresp: model.port("s_axil_bresp")?,
            bvalid: model.port("s_axil_bvalid")?,
            bready: model.port("s_axil_bready")?,
            araddr: model.any_port("s_axil_araddr")?,
            arvalid: model.port("s_axil_arvalid")?,
            arready: model.port("s_axil_arready")?,
            rdata: model.port("s_axil_rdata")?,
            rresp: model.port("s_axil_rresp")?,
            rvalid: model.port("s_axil_rvalid")?,
            rready: model.port("s_axil_rready")?,
        };
        let mut path = PacketPath {
            instance: model.instance(),
            clock: model.port("clock")?,
            reset: model.port("reset")?,
            mac,
            registers,
            receivers: [
                receiver(Role::Responder, "to_responder")?,
                receiver(Role::Requester, "to_requester")?,
            ],
            transmit_token: Input::new(model, "transmit_token")?,
            transmit_payload: Input::new(model, "transmit_payload")?,
            width_bytes: rx_data.width() as usize / 8,
            stalls,
            random: ChaCha8Rng::seed_from_u64(seed),
            cycle: 0,
            frames: VecDeque::new(),
            frame_offset: 0,
            tokens: VecDeque::new(),
            payloads: VecDeque::new(),
            sending: Vec::new(),
            sending_since: 0,
            is_token_offered: false,
            is_payload_offered: false,
            received: Vec::new(),
            sent: Vec::new(),
        };
        path.instance.set(path.reset, 1);
        path.instance.steps(path.clock, 16);
        path.instance.set(path.reset, 0);
        path.instance.steps(path.clock, u64::from(SHARE_SWEEP_CYCLES) + 16);
        Ok(path)
    }

    /// Width of the datapath in bytes.
    pub fn width_bytes(&self) -> usize {
        self.width_bytes
    }

    /// Changes the stalls from now on.
    pub fn set_stalls(&mut self, stalls: Stalls) {
        self.stalls = stalls;
    }

    /// Cycles since the reset was released.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Queues a frame at the MAC.
    ///
    /// # Panics
    /// If the frame is empty: no MAC delivers one.
    pub fn deliver(&mut self, frame: MacFrame) {
        assert!(!frame.bytes.is_empty(), "a frame has at least one byte");
        self.frames.push_back(frame);
    }

    /// Queues a packet to send.
    ///
    /// # Panics
    /// If the token's `payload_bytes` is not the payload's length, or the offset exceeds a beat.
    pub fn transmit(&mut self, packet: Transmit) {
        assert_eq!(
            packet.token.get("payload_bytes"),
            packet.payload.len() as u128,
            "the token says the length"
        );
        assert!(packet.payload_offset < self.width_bytes, "the offset is a lane of the first beat");
        if !packet.payload.is_empty() {
            self.payloads.push_back(PayloadBeats {
                bytes: packet.payload.clone(),
                lane: packet.payload_offset,
                given: 0,
            });
        }
        self.tokens.push_back(packet);
    }

    /// Takes the packets that the card accepted since the last call, in order for each destination.
    pub fn take_received(&mut self) -> Vec<Received> {
        std::mem::take(&mut self.received)
    }

    /// Takes the frames that the card sent since the last call, in order.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Returns whether all queued frames and packets were delivered to the card completely.
    pub fn is_idle_outside(&self) -> bool {
        self.frames.is_empty() && self.tokens.is_empty() && self.payloads.is_empty()
    }

    /// Frames that are queued at the MAC.
    pub fn frames_waiting(&self) -> usize {
        self.frames.len()
    }

    /// Simulates one cycle of the core clock.
    pub fn step(&mut self) {
        self.drive_mac();
        self.drive_transmit();
        let is_mac_ready = !self.stalls(self.stalls.sink);
        self.instance.set(self.mac.tx_ready, is_mac_ready.into());
        for index in 0..self.receivers.len() {
            for ready in [self.receivers[index].token.ready, self.receivers[index].payload.ready] {
                let is_ready = !self.stalls(self.stalls.sink);
                self.instance.set(ready, is_ready.into());
            }
        }
        self.instance.eval();
        self.collect_received();
        self.collect_sent();
        self.advance_transmit();
        self.instance.step(self.clock);
        self.cycle += 1;
    }

    /// Draws a stall.
    fn stalls(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.random_bool(probability)
    }

    fn drive_mac(&mut self) {
        let waits = self.frames.is_empty() || self.stalls(self.stalls.source);
        self.instance.set(self.mac.rx_valid, (!waits).into());
        if waits {
            return;
        }
        let frame = &self.frames[0];
        let end = frame.bytes.len().min(self.frame_offset + self.width_bytes);
        let bytes = &frame.bytes[self.frame_offset..end];
        let is_last = end == frame.bytes.len();
        let mut data = vec![0; self.mac.rx_data.words()];
        words::set_bytes(&mut data, 0, bytes);
        let mut keep = vec![0; self.mac.rx_keep.words()];
        words::set(&mut keep, 0, self.width_bytes, (1u128 << bytes.len()) - 1);
        self.instance.write_words(self.mac.rx_data, &data);
        self.instance.write_words(self.mac.rx_keep, &keep);
        self.instance.set(self.mac.rx_last, is_last.into());
        self.instance.set(self.mac.rx_error, (is_last && frame.error).into());
        // A MAC cannot stall: the beat is lost if it was not taken.
        self.frame_offset = end;
        if is_last {
            self.frames.pop_front();
            self.frame_offset = 0;
        }
    }

    fn drive_transmit(&mut self) {
        // A beat that was offered stays valid until it is taken.
        self.is_token_offered |= !self.tokens.is_empty() && !self.stalls(self.stalls.source);
        self.is_payload_offered |= !self.payloads.is_empty() && !self.stalls(self.stalls.source);
        self.instance.set(self.transmit_token.valid, self.is_token_offered.into());
        self.instance.set(self.transmit_payload.valid, self.is_payload_offered.into());
        if self.is_token_offered {
            let packet = &self.tokens[0];
            let mut beat = packet.token.words().to_vec();
            beat.resize(self.transmit_token.beat.words(), 0);
            let offset_width = self.transmit_token.beat.width() as usize - TOKEN_BITS;
            words::set(&mut beat, TOKEN_BITS, offset_width, packet.payload_offset as u128);
            self.instance.write_words(self.transmit_token.beat, &beat);
        }
        if self.is_payload_offered {
            let payload = &self.payloads[0];
            let (start, end) = payload.next(self.width_bytes);
            let is_last = end == payload.bytes.len();
            let lane = payload.lane;
            let mut beat = vec![0; self.transmit_payload.beat.words()];
            words::set_bytes(&mut beat, lane * 8, &payload.bytes[start..end]);
            let count_width = count_width(self.width_bytes);
            words::set(&mut beat, self.width_bytes * 8, count_width, (lane + end - start) as u128);
            words::set(&mut beat, self.width_bytes * 8 + count_width, 1, is_last.into());
            self.instance.write_words(self.transmit_payload.beat, &beat);
        }
    }

    fn advance_transmit(&mut self) {
        if self.is_token_offered && self.transmit_token.moves(&self.instance) {
            self.tokens.pop_front();
            self.is_token_offered = false;
        }
        if self.is_payload_offered && self.transmit_payload.moves(&self.instance) {
            let payload = &mut self.payloads[0];
            payload.given = payload.next(self.width_bytes).1;
            payload.lane = 0;
            if payload.given == payload.bytes.len() {
                self.payloads.pop_front();
            }
            self.is_payload_offered = false;
        }
    }

    fn collect_received(&mut self) {
        for receiver in &mut self.receivers {
            if receiver.token.take(&self.instance) {
                let mut token = Token::from_words(&receiver.token.offered);
                // Which cell it is does not matter outside of the card.
                token.set("first_cell", 0_u128);
                receiver.waiting.push_back(token);
            }
            if receiver.payload.take(&self.instance) {
                let count_width = count_width(self.width_bytes);
                let count = words::get(&receiver.payload.offered, self.width_bytes * 8, count_width) as usize;
                let mut bytes = vec![0; count];
                words::get_bytes(&receiver.payload.offered, 0, &mut bytes);
                receiver.bytes.extend(bytes);
            }
            while let Some(token) = receiver.waiting.front() {
                let payload_bytes = token.get("payload_bytes") as usize;
                if receiver.bytes.len() < payload_bytes {
                    break;
                }
                let payload = receiver.bytes.drain(..payload_bytes).collect();
                let token = receiver.waiting.pop_front().expect("the front is there");
                self.received.push(Received { role: receiver.role, token, payload, cycle: self.cycle });
            }
        }
    }

    fn collect_sent(&mut self) {
        if self.instance.get(self.mac.tx_valid) == 0 || self.instance.get(self.mac.tx_ready) == 0 {
            return;
        }
        if self.sending.is_empty() {
            self.sending_since = self.cycle;
        }
        let mut keep = vec![0; self.mac.tx_keep.words()];
        self.instance.read_words(self.mac.tx_keep, &mut keep);
        let count: u32 = keep.iter().map(|word| word.count_ones()).sum();
        let mut data = vec![0; self.mac.tx_data.words()];
        self.instance.read_words(self.mac.tx_data, &mut data);
        let mut bytes = vec![0; count as usize];
        words::get_bytes(&data, 0, &mut bytes);
        self.sending.extend(bytes);
        if self.instance.get(self.mac.tx_last) == 1 {
            assert_eq!(self.instance.get(self.mac.tx_error), 0, "the assembler marks no frame as broken");
            let bytes = std::mem::take(&mut self.sending);
            self.sent.push(Sent { bytes, cycles: (self.sending_since, self.cycle) });
        }
    }

    /// Reads a register of BAR 0, while all streams keep running.
    ///
    /// # Errors
    /// If the slave refuses the address, or does not answer in time.
    pub fn read_register(&mut self, offset: u64) -> Result<u64> {
        self.instance.write_words(self.registers.araddr, &[offset as u32]);
        self.instance.set(self.registers.arvalid, 1);
        self.instance.set(self.registers.rready, 1);
        let deadline = self.cycle + REGISTER_CYCLES_MAX;
        let mut is_asked = false;
        while self.cycle < deadline {
            self.instance.eval();
            let is_address_taken = !is_asked && self.instance.get(self.registers.arready) == 1;
            let answer = (self.instance.get(self.registers.rvalid) == 1)
                .then(|| (self.instance.get(self.registers.rdata), self.instance.get(self.registers.rresp)));
            self.step();
            if is_address_taken {
                is_asked = true;
                self.instance.set(self.registers.arvalid, 0);
            }
            if let Some((data, response)) = answer {
                self.instance.set(self.registers.rready, 0);
                ensure!(response == 0, "reading register {offset:#x}: the slave answers {response}");
                return Ok(data);
            }
        }
        Err(anyhow::anyhow!("reading register {offset:#x}: no answer in {REGISTER_CYCLES_MAX} cycles"))
    }

    /// Writes a register of BAR 0, while all streams keep running.
    ///
    /// # Errors
    /// If the slave refuses the address, or does not answer in time.
    pub fn write_register(&mut self, offset: u64, value: u64) -> Result<()> {
        self.write_register_bytes(offset, value, 0xff)
    }

    /// Writes the bytes of a register whose bit in `strobe` is set.
    ///
    /// # Errors
    /// As [`write_register`](Self::write_register).
    pub fn write_register_bytes(&mut self, offset: u64, value: u64, strobe: u8) -> Result<()> {
        self.instance.write_words(self.registers.awaddr, &[offset as u32]);
        self.instance.set(self.registers.awvalid, 1);
        self.instance.set(self.registers.wdata, value);
        self.instance.set(self.registers.wstrb, strobe);
        self.instance.set(self.registers.wvalid, 1);
        self.instance.set(self.registers.bready, 1);
        let deadline = self.cycle + REGISTER_CYCLES_MAX;
        while self.cycle < deadline {
            self.instance.eval();
            let taken = [
                (self.registers.awvalid, self.instance.get(self.registers.awready) == 1),
                (self.registers.wvalid, self.instance.get(self.registers.wready) == 1),
            ];
            let answer = (self.instance.get(self.registers.bvalid) == 1)
                .then(|| self.instance.get(self.registers.bresp));
            self.step();
            for (valid, is_taken) in taken {
                if is_taken {
                    self.instance.set(valid, 0);
                }
            }
            if let Some(response) = answer {
                self.instance.set(self.registers.bready, 0);
                ensure!(response == 0, "writing register {offset:#x}: the slave answers {response}");
                return Ok(());
            }
        }
        Err(anyhow::anyhow!("writing register {offset:#x}: no answer in {REGISTER_CYCLES_MAX} cycles"))
    }

    /// Writes a waveform from now on.
    ///
    /// # Errors
    /// If the model was built without tracing, or the file cannot be written.
    pub fn trace(&mut self, path: &std::path::Path) -> Result<()> {
        self.instance.trace_open(path).context("no wave")
    }
}

impl PayloadBeats {
    /// Offset and length of the next beat's bytes.
    fn next(&self, width_bytes: usize) -> (usize, usize) {
        (self.given, self.bytes.len().min(self.given + width_bytes - self.lane))
    }
}

/// Width of the byte count of a beat, in bits.
fn count_width(width_bytes: usize) -> usize {
    width_bytes.ilog2() as usize + 1
}
