//! A verilated card with its clocks, its host and its MAC.
//!
//! Each rising edge is one call. The outputs before the edge, with the inputs that were set after the previous one, are what
//! transfers at this edge. Then the clock rises and falls, and the inputs for the next edge are set. All that surrounds the
//! card is therefore registered, as on a board, and an edge costs two evaluations of the model.
use super::clock::{Clock, ClockOptions};
use super::fst;
use crate::host::{
    FromCard, FromSlave, Host, HostOptions, LANES_MAX, ReadRequest, ReadWord, ToCard, ToSlave, Word,
    WriteRequest, WriteWord,
};
use crate::monitor::bus_master::{BusMasterMonitor, Offer, Offers};
use crate::monitor::counters::{self, Seen, Uncounted};
use crate::monitor::pools::{self, Remains};
use crate::monitor::stream::StreamMonitor;
use crate::monitor::trail::Moment;
use crate::monitor::{Log, Rule};
use crate::wire::mac::{Beat, Departure, MacReceive, MacTransmit};
use crate::wire::{Frame, WireOptions};
use anyhow::{Context, Result, ensure};
use rnic_monitor::{Finding, Rates};
use rnic_stimulus::chance::Seed;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use verilator_sys::{AnyPort, Instance, Model, Port};

/// Length of each reset, in cycles of its clock.
const RESET_CYCLES: u64 = 32;

/// Clock domains of a card, in the order in which simultaneous edges are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Core clock: host interface and registers.
    Core,
    /// Clock of frames from the MAC.
    Receive,
    /// Clock of frames to the MAC.
    Transmit,
}

impl Domain {
    /// All domains, in order.
    pub const ALL: [Domain; 3] = [Domain::Core, Domain::Receive, Domain::Transmit];

    fn name(self) -> &'static str {
        match self {
            Domain::Core => "core",
            Domain::Receive => "mac_rx",
            Domain::Transmit => "mac_tx",
        }
    }
}

/// Options of a card and of its surroundings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardOptions {
    /// Core clock.
    pub core: ClockOptions,
    /// Both MAC clocks. Each has a phase of its own.
    pub mac: ClockOptions,
    /// Rate of the network port.
    pub bits_per_second: u64,
    /// Host of the card.
    pub host: HostOptions,
    /// The frames that the card sends are judged. False only for a card that does not speak RoCEv2.
    pub is_judged: bool,
}

impl CardOptions {
    /// A card of these clocks and this line rate, on the host of the standard bench.
    pub const fn new(core_hertz: u64, mac_hertz: u64, bits_per_second: u64) -> CardOptions {
        CardOptions {
            core: ClockOptions::steady(core_hertz),
            mac: ClockOptions::steady(mac_hertz),
            bits_per_second,
            host: HostOptions::STANDARD,
            is_judged: true,
        }
    }

    /// The card of the preset of a datapath width, in bits.
    ///
    /// # Panics
    /// If no preset has this width.
    pub fn standard(width_bits: u32) -> CardOptions {
        let text = match width_bits {
            64 => include_str!("../../configs/w64.toml"),
            128 => include_str!("../../configs/w128.toml"),
            256 => include_str!("../../configs/w256.toml"),
            512 => include_str!("../../configs/w512.toml"),
            _ => panic!("no datapath has {width_bits} bits"),
        };
        let preset: toml::Table = text.parse().expect("a preset is TOML");
        let number = |section: &str, name: &str| {
            let number = preset[section][name].as_integer().expect("the setting is a number");
            u64::try_from(number).expect("the setting is positive")
        };
        CardOptions::new(
            number("datapath", "core_clock_mhz") * 1_000_000,
            number("network", "mac_clock_hz"),
            number("network", "line_rate_gbps") * 1_000_000_000,
        )
    }

    /// Rates of the card.
    pub const fn rates(&self) -> Rates {
        Rates { core_hertz: self.core.hertz, bits_per_second: self.bits_per_second }
    }

    /// A wire without faults, at the port rate of this card.
    pub fn wire(&self) -> WireOptions {
        WireOptions::perfect(self.bits_per_second)
    }
}

/// Clock and reset of one domain.
struct Edge {
    domain: Domain,
    clock: Clock,
    clock_port: Port<u8>,
    reset_port: Port<u8>,
    is_in_reset: bool,
}

/// A port with the width of the datapath, or a mask of its bytes.
#[derive(Clone, Copy)]
struct WidePort(AnyPort);

impl WidePort {
    fn get(self, instance: &Instance) -> Word {
        let mut words = [0_u32; LANES_MAX / 4];
        instance.read_words(self.0, &mut words);
        let mut data = [0; LANES_MAX];
        for (bytes, word) in data.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Word(data)
    }

    fn set(self, instance: &mut Instance, word: &Word) {
        let mut words = [0_u32; LANES_MAX / 4];
        for (bytes, word) in word.0.chunks_exact(4).zip(&mut words) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        instance.write_words(self.0, &words[..self.0.words()]);
    }

    fn get_mask(self, instance: &Instance) -> u64 {
        let mut words = [0_u32; 2];
        instance.read_words(self.0, &mut words);
        u64::from(words[0]) | u64::from(words[1]) << 32
    }

    fn set_mask(self, instance: &mut Instance, mask: u64) {
        let words = [mask as u32, (mask >> 32) as u32];
        instance.write_words(self.0, &words[..self.0.words()]);
    }
}

struct HostPorts {
    read_request: StreamMonitor,
    read_request_ready: Port<u8>,
    read_address: Port<u64>,
    read_length: Port<u16>,
    read_tag: Port<u8>,
    read_valid: Port<u8>,
    read_data: WidePort,
    read_bytes: Port<u8>,
    read_last: Port<u8>,
    read_data_tag: Port<u8>,
    read_error: Port<u8>,
    write_request: StreamMonitor,
    write_request_ready: Port<u8>,
    write_address: Port<u64>,
    write_length: Port<u16>,
    write_word: StreamMonitor,
    write_data_ready: Port<u8>,
    write_data: WidePort,
    write_last: Port<u8>,
    done_valid: Port<u8>,
    done_error: Port<u8>,
    interrupt: StreamMonitor,
    interrupt_ready: Port<u8>,
    vector: Port<u8>,
    bus_master: BusMasterMonitor,
}

/// Ports by which the PCI function and the board tell the card what it is.
struct ShellPorts {
    bus_master: Port<u8>,
    reset_request: Port<u8>,
    reset_done: Port<u8>,
    link_up: Port<u8>,
    speed: Port<u32>,
    mac: Port<u64>,
}

impl ShellPorts {
    fn new(model: &Model) -> Result<ShellPorts> {
        Ok(ShellPorts {
            bus_master: model.port("bus_master")?,
            reset_request: model.port("flr_request")?,
            reset_done: model.port("flr_done")?,
            link_up: model.port("link_up")?,
            speed: model.port("port_speed")?,
            mac: model.port("permanent_mac")?,
        })
    }
}

impl HostPorts {
    fn new(model: &Model) -> Result<HostPorts> {
        let read_request_ready = model.port("host_rd_req_ready")?;
        let write_request_ready = model.port("host_wr_req_ready")?;
        let write_data_ready = model.port("host_wr_data_ready")?;
        let interrupt_ready = model.port("irq_ready")?;
        Ok(HostPorts {
            read_request: monitor(model, "host_rd_req", &["address", "length", "tag"])?,
            read_request_ready,
            read_address: model.port("host_rd_req_address")?,
            read_length: model.port("host_rd_req_length")?,
            read_tag: model.port("host_rd_req_tag")?,
            read_valid: model.port("host_rd_data_valid")?,
            read_data: WidePort(model.any_port("host_rd_data_data")?),
            read_bytes: model.port("host_rd_data_bytes")?,
            read_last: model.port("host_rd_data_last")?,
            read_data_tag: model.port("host_rd_data_tag")?,
            read_error: model.port("host_rd_data_error")?,
            write_request: monitor(model, "host_wr_req", &["address", "length"])?,
            write_request_ready,
            write_address: model.port("host_wr_req_address")?,
            write_length: model.port("host_wr_req_length")?,
            write_word: monitor(model, "host_wr_data", &["data", "last"])?,
            write_data_ready,
            write_data: WidePort(model.any_port("host_wr_data_data")?),
            write_last: model.port("host_wr_data_last")?,
            done_valid: model.port("host_wr_done_valid")?,
            done_error: model.port("host_wr_done_error")?,
            interrupt: monitor(model, "irq", &["vector"])?,
            interrupt_ready,
            vector: model.port("irq_vector")?,
            bus_master: BusMasterMonitor::new(),
        })
    }

    fn sample(&mut self, instance: &Instance, now_ps: u64, log: &mut Log) -> FromCard {
        let mut from = FromCard::default();
        let held = [
            self.read_request.is_held(),
            self.write_request.is_held(),
            self.write_word.is_held(),
            self.interrupt.is_held(),
        ];
        if self.read_request.sample(instance, now_ps, log) {
            from.read_request = Some(ReadRequest {
                address: instance.get(self.read_address),
                length: instance.get(self.read_length).into(),
                tag: instance.get(self.read_tag),
            });
        }
        if self.write_request.sample(instance, now_ps, log) {
            from.write_request = Some(WriteRequest {
                address: instance.get(self.write_address),
                length: instance.get(self.write_length).into(),
            });
        }
        if self.write_word.sample(instance, now_ps, log) {
            let last = instance.get(self.write_last) == 1;
            from.write_word = Some(WriteWord { data: self.write_data.get(instance), last });
        }
        if self.interrupt.sample(instance, now_ps, log) {
            from.interrupt = Some(instance.get(self.vector));
        }
        let offer = |was_held: bool, is_held: bool, is_taken: bool| Offer {
            begins: !was_held && (is_held || is_taken),
            is_taken,
        };
        let offers = Offers {
            read: offer(held[0], self.read_request.is_held(), from.read_request.is_some()),
            write: offer(held[1], self.write_request.is_held(), from.write_request.is_some()),
            word: offer(held[2], self.write_word.is_held(), from.write_word.is_some()),
            is_last: from.write_word.is_some_and(|word| word.last),
            interrupt: offer(held[3], self.interrupt.is_held(), from.interrupt.is_some()),
        };
        self.bus_master.sample(&offers, now_ps, log);
        from
    }

    fn drive(&self, instance: &mut Instance, to: &ToCard) {
        instance.set(self.read_request_ready, to.read_request_ready.into());
        instance.set(self.write_request_ready, to.write_request_ready.into());
        instance.set(self.write_data_ready, to.write_data_ready.into());
        instance.set(self.interrupt_ready, to.interrupt_ready.into());
        instance.set(self.done_valid, to.write_done.is_some().into());
        instance.set(self.done_error, to.write_done.unwrap_or(false).into());
        instance.set(self.read_valid, to.read_word.is_some().into());
        if let Some(ReadWord { data, bytes, last, error, tag }) = &to.read_word {
            self.read_data.set(instance, data);
            instance.set(self.read_bytes, *bytes as u8);
            instance.set(self.read_last, (*last).into());
            instance.set(self.read_error, (*error).into());
            instance.set(self.read_data_tag, *tag);
        }
    }
}

/// Monitors a stream whose beat consists of the named ports.
fn monitor(model: &Model, stream: &'static str, parts: &[&str]) -> Result<StreamMonitor> {
    let valid = model.port(&format!("{stream}_valid"))?;
    let ready = model.port(&format!("{stream}_ready"))?;
    let beat: Result<Vec<AnyPort>, _> =
        parts.iter().map(|part| model.any_port(&format!("{stream}_{part}"))).collect();
    Ok(StreamMonitor::new(stream, valid, ready, &beat?))
}

struct SlavePorts {
    write_answer: StreamMonitor,
    read_answer: StreamMonitor,
    awaddr: Port<u32>,
    awvalid: Port<u8>,
    awready: Port<u8>,
    wdata: Port<u64>,
    wstrb: Port<u8>,
    wvalid: Port<u8>,
    wready: Port<u8>,
    bresp: Port<u8>,
    bvalid: Port<u8>,
    bready: Port<u8>,
    araddr: Port<u32>,
    arvalid: Port<u8>,
    arready: Port<u8>,
    rdata: Port<u64>,
    rresp: Port<u8>,
    rvalid: Port<u8>,
    rready: Port<u8>,
    /// Inputs of the slave as they were set last, so that they are set only when they change.
    shown: ToSlave,
}

impl SlavePorts {
    fn new(model: &Model) -> Result<SlavePorts> {
        let (bvalid, bready) = (model.port("s_axil_bvalid")?, model.port("s_axil_bready")?);
        let (rvalid, rready) = (model.port("s_axil_rvalid")?, model.port("s_axil_rready")?);
        let write_beat = [model.any_port("s_axil_bresp")?];
        let read_beat = [model.any_port("s_axil_rdata")?, model.any_port("s_axil_rresp")?];
        Ok(SlavePorts {
            write_answer: StreamMonitor::new("s_axil_b", bvalid, bready, &write_beat),
            read_answer: StreamMonitor::new("s_axil_r", rvalid, rready, &read_beat),
            awaddr: model.port("s_axil_awaddr")?,
            awvalid: model.port("s_axil_awvalid")?,
            awready: model.port("s_axil_awready")?,
            wdata: model.port("s_axil_wdata")?,
            wstrb: model.port("s_axil_wstrb")?,
            wvalid: model.port("s_axil_wvalid")?,
            wready: model.port("s_axil_wready")?,
            bresp: model.port("s_axil_bresp")?,
            bvalid,
            bready,
            araddr: model.port("s_axil_araddr")?,
            arvalid: model.port("s_axil_arvalid")?,
            arready: model.port("s_axil_arready")?,
            rdata: model.port("s_axil_rdata")?,
            rresp: model.port("s_axil_rresp")?,
            rvalid,
            rready,
            shown: ToSlave::default(),
        })
    }

    fn sample(&mut self, instance: &Instance, now_ps: u64, log: &mut Log) -> FromSlave {
        self.write_answer.sample(instance, now_ps, log);
        self.read_answer.sample(instance, now_ps, log);
        let flag = |port| instance.get(port) == 1;
        FromSlave {
            awready: flag(self.awready),
            wready: flag(self.wready),
            write_answer: flag(self.bvalid).then(|| instance.get(self.bresp)),
            arready: flag(self.arready),
            read_answer: flag(self.rvalid).then(|| (instance.get(self.rdata), instance.get(self.rresp))),
        }
    }

    fn drive(&mut self, instance: &mut Instance, to: &ToSlave) {
        if *to == self.shown {
            return;
        }
        self.shown = *to;
        instance.set(self.awaddr, to.address);
        instance.set(self.araddr, to.address);
        instance.set(self.wdata, to.data);
        instance.set(self.wstrb, to.strobe);
        instance.set(self.awvalid, to.awvalid.into());
        instance.set(self.wvalid, to.wvalid.into());
        instance.set(self.bready, to.bready.into());
        instance.set(self.arvalid, to.arvalid.into());
        instance.set(self.rready, to.rready.into());
    }
}

struct MacPorts {
    rx_valid: Port<u8>,
    rx_data: WidePort,
    rx_keep: WidePort,
    rx_last: Port<u8>,
    rx_error: Port<u8>,
    tx: StreamMonitor,
    tx_ready: Port<u8>,
    tx_data: WidePort,
    tx_keep: WidePort,
    tx_last: Port<u8>,
    tx_error: Port<u8>,
}

impl MacPorts {
    fn new(model: &Model) -> Result<MacPorts> {
        let tx_ready = model.port("mac_tx_tready")?;
        let tx_beat: Result<Vec<AnyPort>, _> = ["tdata", "tkeep", "tlast", "tuser"]
            .iter()
            .map(|part| model.any_port(&format!("mac_tx_{part}")))
            .collect();
        Ok(MacPorts {
            rx_valid: model.port("mac_rx_tvalid")?,
            rx_data: WidePort(model.any_port("mac_rx_tdata")?),
            rx_keep: WidePort(model.any_port("mac_rx_tkeep")?),
            rx_last: model.port("mac_rx_tlast")?,
            rx_error: model.port("mac_rx_tuser")?,
            tx: StreamMonitor::new("mac_tx", model.port("mac_tx_tvalid")?, tx_ready, &tx_beat?),
            tx_ready,
            tx_data: WidePort(model.any_port("mac_tx_tdata")?),
            tx_keep: WidePort(model.any_port("mac_tx_tkeep")?),
            tx_last: model.port("mac_tx_tlast")?,
            tx_error: model.port("mac_tx_tuser")?,
        })
    }
}

/// A verilated card with its clocks, host, MAC and monitors.
pub struct Card {
    name: String,
    options: CardOptions,
    instance: Instance,
    edges: [Edge; 3],
    host_ports: HostPorts,
    slave_ports: SlavePorts,
    shell_ports: ShellPorts,
    mac_ports: MacPorts,
    /// Debug output that is high for each accepted frame, if the card has it.
    accepted: Option<Port<u8>>,
    to_card: ToCard,
    lanes: usize,
    host: Host,
    receive: MacReceive,
    transmit: MacTransmit,
    uncounted: Uncounted,
    log: Log,
    trace_ps: Option<u64>,
    trace_path: Option<PathBuf>,
    /// Time at which its clocks were stopped; `None` while they run.
    stands_since_ps: Option<u64>,
    /// Time that the evaluation of the model has taken; `None` unless it is measured.
    evaluation: Option<Duration>,
}

impl Card {
    /// Instantiates a model and holds it in reset. Its function is bus master, and its link up, until somebody says otherwise.
    ///
    /// # Errors
    /// If the model lacks a port of the core boundary (`docs/hardware.md`), or a port has another width.
    pub fn new(model: &Model, options: CardOptions, now_ps: u64, seed: Seed, name: &str) -> Result<Card> {
        let build = || -> Result<Card> {
            let mac_ports = MacPorts::new(model)?;
            let width_bits = mac_ports.tx_data.0.width();
            let lanes = width_bits as usize / 8;
            ensure!(lanes <= LANES_MAX && lanes.is_power_of_two(), "a datapath of {width_bits} bits");
            let host_ports = HostPorts::new(model)?;
            ensure!(
                host_ports.read_data.0.width() == width_bits,
                "host_rd_data_data and mac_tx_tdata differ"
            );
            let edge = |domain: Domain| -> Result<Edge> {
                let part = domain.name();
                let clock_options = if domain == Domain::Core { options.core } else { options.mac };
                Ok(Edge {
                    domain,
                    clock: Clock::new(clock_options, now_ps, seed, &format!("{name}/{part}")),
                    clock_port: model.port(&format!("{part}_clock"))?,
                    reset_port: model.port(&format!("{part}_reset"))?,
                    is_in_reset: true,
                })
            };
            let mut card = Card {
                name: name.to_string(),
                options,
                instance: model.instance(),
                edges: [edge(Domain::Core)?, edge(Domain::Receive)?, edge(Domain::Transmit)?],
                host_ports,
                slave_ports: SlavePorts::new(model)?,
                shell_ports: ShellPorts::new(model)?,
                mac_ports,
                accepted: model.port("observe_accepted").ok(),
                to_card: ToCard::default(),
                lanes,
                host: Host::new(options.host, options.rates(), lanes, seed, name),
                receive: MacReceive::new(lanes, options.bits_per_second),
                transmit: MacTransmit::new(lanes, options.bits_per_second),
                uncounted: Uncounted::default(),
                log: Log::new(name),
                trace_ps: None,
                trace_path: None,
                stands_since_ps: None,
                evaluation: None,
            };
            for edge in &card.edges {
                card.instance.set(edge.reset_port, 1);
            }
            let speed = options.bits_per_second / 1_000_000;
            card.instance.set(card.shell_ports.bus_master, 1);
            card.instance.set(card.shell_ports.link_up, 1);
            card.instance.set(card.shell_ports.speed, u32::try_from(speed).context("the rate of the port")?);
            card.instance.eval();
            Ok(card)
        };
        build().with_context(|| format!("`{}` is no card", model.top()))
    }

    /// Name in messages and file names.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Options that the card was made with.
    pub fn options(&self) -> &CardOptions {
        &self.options
    }

    /// Width of the datapath, in bits.
    pub fn width_bits(&self) -> usize {
        self.lanes * 8
    }

    /// Host of the card.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Host of the card.
    pub fn host_mut(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Software is about to unmap the memory at a device address: reports it if an object of the card may still access it.
    pub fn check_release(&mut self, now_ps: u64, address: u64) {
        self.host.check_release(now_ps, address, &mut self.log);
    }

    /// Gives the card the MAC address of its board, as a number.
    pub fn set_permanent_mac(&mut self, mac: u64) {
        self.instance.set(self.shell_ports.mac, mac);
    }

    /// Brings the link up, or down.
    pub fn set_link(&mut self, is_up: bool) {
        self.instance.set(self.shell_ports.link_up, is_up.into());
    }

    /// Lets the card reach its host, or not: the function is bus master, or ends to be it.
    pub(super) fn set_bus_master(&mut self, is_master: bool) {
        self.instance.set(self.shell_ports.bus_master, is_master.into());
        self.host_ports.bus_master.set(is_master);
    }

    /// Requests a function-level reset, or ends the request. The card drains until it acknowledges, and cuts off at most one frame then,
    /// as after a reset by register. What software has set up counts until the end of the request; then the monitors forget it.
    pub fn request_reset(&mut self, now_ps: u64, is_requested: bool) {
        self.instance.set(self.shell_ports.reset_request, is_requested.into());
        if is_requested {
            self.transmit.reset(now_ps);
        } else {
            self.host.forget(now_ps);
            self.host_ports.bus_master.forget();
            // The MAC knows of this reset from its beginning.
            self.host.take_reset();
        }
    }

    /// Returns whether the card says that a function-level reset is done.
    pub fn reset_is_done(&self) -> bool {
        self.instance.get(self.shell_ports.reset_done) == 1
    }

    /// Violations that its monitors have seen.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Violations that its monitors have seen; a test takes those that it expects.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Rising edges of a clock since the card was made.
    pub fn cycles(&self, domain: Domain) -> u64 {
        self.edges[domain as usize].clock.cycles()
    }

    /// Period of a clock in picoseconds, rounded down.
    pub fn period_ps(&self, domain: Domain) -> u64 {
        self.edges[domain as usize].clock.period_ps()
    }

    /// Returns whether one of its resets is active.
    pub fn is_in_reset(&self) -> bool {
        self.edges.iter().any(|edge| edge.is_in_reset)
    }

    /// Width in bits and value of a port, as it transfers at the next edge of its clock.
    ///
    /// # Panics
    /// If there is no such port, or it has more than 64 bits.
    pub fn port(&self, name: &str) -> (usize, u64) {
        let port = WidePort(self.instance.any_port(name).expect("the card has the port"));
        (port.0.width() as usize, port.get_mask(&self.instance))
    }

    /// Counts of what crossed its ports.
    pub fn seen(&self) -> Seen {
        Seen { received: self.receive.received(), sent: self.transmit.sent(), traffic: self.host.traffic() }
    }

    /// Checks a snapshot of its counters. Those that a reset explains have been taken away.
    pub(super) fn check_counters(&mut self, now_ps: u64, snapshot: &[u64]) {
        let expected = self.uncounted.leave_out(&self.seen());
        counters::check(&mut self.log, now_ps, snapshot, &expected, true);
    }

    /// Takes note of what a snapshot lacks after a reset that began when its ports had seen `since`.
    pub(super) fn excuse(&mut self, now_ps: u64, snapshot: &[u64], since: &Seen) {
        let seen = self.seen();
        self.uncounted.add(&mut self.log, now_ps, snapshot, &seen, since);
    }

    /// Frames that the MAC has not delivered completely.
    pub fn frames_waiting(&self) -> usize {
        self.receive.waiting()
    }

    /// Delivers a frame to the MAC, whose first byte arrives at `start_ps`.
    pub fn arrive(&mut self, start_ps: u64, frame: Frame) {
        if self.options.is_judged {
            self.host.port_mut().received(start_ps, &frame.bytes, frame.is_damaged);
        }
        self.receive.arrive(start_ps, frame);
    }

    /// Judges a frame that the card sends on a wire; `wire` is its index and direction.
    pub fn judge(&mut self, now_ps: u64, wire: Option<(usize, usize)>, frame: &Frame) {
        // The receiver's MAC drops a frame that is damaged.
        if !self.options.is_judged || frame.is_damaged {
            return;
        }
        for finding in self.host.port_mut().sent(now_ps, &frame.bytes) {
            self.report_finding(now_ps, wire, &finding);
        }
    }

    /// Number of times that the card has sent requests again without a reason that its port has seen.
    pub(super) fn unexplained(&mut self) -> u64 {
        self.host.port_mut().unexplained()
    }

    /// Checks whether frames that the card has dropped for lack of room explain that it has sent requests again. `unexplained` is how
    /// often it had done so without another reason before the snapshot was taken.
    pub(super) fn check_unexplained(
        &mut self,
        wire: Option<(usize, usize)>,
        unexplained: u64,
        snapshot: &[u64],
    ) {
        let dropped = counters::dropped_for_room(snapshot);
        for (time_ps, finding) in self.host.port_mut().explain(unexplained, dropped) {
            self.report_finding(time_ps, wire, &finding);
        }
    }

    /// Reports what the monitor of the port has found of a frame that left at a time.
    fn report_finding(&mut self, time_ps: u64, wire: Option<(usize, usize)>, finding: &Finding) {
        self.log.report(time_ps, Rule::Wire, || match wire {
            Some((wire, direction)) => format!("wire {wire}, direction {direction}: {finding}"),
            None => format!("no wire: {finding}"),
        });
    }

    /// Starts to measure the time that the model's evaluation takes.
    pub fn watch_evaluation(&mut self) {
        self.evaluation = Some(Duration::ZERO);
    }

    /// Time that the evaluation has taken since [`watch_evaluation`](Self::watch_evaluation).
    pub fn evaluation(&self) -> Duration {
        self.evaluation.unwrap_or_default()
    }

    fn evaluate(&mut self) {
        let start = self.evaluation.map(|_| Instant::now());
        self.instance.eval();
        if let Some((sum, start)) = self.evaluation.as_mut().zip(start) {
            *sum += start.elapsed();
        }
    }

    /// Writes a waveform from now on.
    ///
    /// # Errors
    /// If the model was built without tracing, or the file cannot be written.
    pub fn trace(&mut self, path: &Path) -> Result<()> {
        self.instance.trace_open(path).context("no wave")?;
        self.trace_ps = Some(0);
        self.trace_path = Some(path.to_path_buf());
        Ok(())
    }

    /// Ends the waveform; a file that is not ended cannot be read. Returns what is wrong with the file, if it could not be written.
    pub fn end_trace(&mut self) -> Option<String> {
        self.trace_ps = None;
        self.instance.trace_close();
        // The writer is silent about a disk that is full.
        let path = self.trace_path.take()?;
        let outcome = fst::check(&path);
        outcome.err().map(|error| format!("the wave {} cannot be read: {error}", path.display()))
    }

    /// Stops all clocks, or resumes them with the phase at which they were stopped.
    pub fn let_run(&mut self, now_ps: u64, runs: bool) {
        match (self.stands_since_ps, runs) {
            (None, false) => self.stands_since_ps = Some(now_ps),
            (Some(since_ps), true) => {
                self.edges.iter_mut().for_each(|edge| edge.clock.shift(now_ps - since_ps));
                self.stands_since_ps = None;
            }
            _ => {}
        }
    }

    /// Returns whether the clocks run.
    pub fn runs(&self) -> bool {
        self.stands_since_ps.is_none()
    }

    /// Time and domain of the next edge; of simultaneous edges, the first domain.
    #[inline]
    pub fn next_edge(&self) -> (u64, Domain) {
        let mut next = (self.edges[0].clock.next_ps(), Domain::Core);
        for edge in &self.edges[1..] {
            if edge.clock.next_ps() < next.0 {
                next = (edge.clock.next_ps(), edge.domain);
            }
        }
        next
    }

    /// Processes one rising edge. Returns the frame that leaves with it, if one does.
    pub fn edge(&mut self, now_ps: u64, domain: Domain) -> Option<Departure> {
        let edge = &mut self.edges[domain as usize];
        edge.clock.advance();
        if edge.is_in_reset {
            self.reset_edge(now_ps, domain);
            return None;
        }
        match domain {
            Domain::Core => {
                self.core_edge(now_ps);
                None
            }
            Domain::Receive => {
                self.receive_edge(now_ps);
                None
            }
            Domain::Transmit => self.transmit_edge(now_ps),
        }
    }

    /// Raises and lowers the clock and sets the inputs, which take effect with [`settle`](Self::settle).
    fn tick(&mut self, now_ps: u64, domain: Domain) {
        let port = self.edges[domain as usize].clock_port;
        self.instance.set(port, 1);
        self.evaluate();
        self.dump(now_ps);
        self.instance.set(port, 0);
    }

    fn settle(&mut self, now_ps: u64, domain: Domain) {
        self.evaluate();
        if self.trace_ps.is_some() {
            // The falling edge is drawn at a quarter of the period; no register uses it.
            self.dump(now_ps + self.edges[domain as usize].clock.period_ps() / 4);
        }
    }

    /// Adds a sample to the waveform. Its times must increase, so events at one time are drawn 1 ps apart.
    fn dump(&mut self, now_ps: u64) {
        if let Some(trace_ps) = &mut self.trace_ps {
            *trace_ps = now_ps.max(*trace_ps + 1);
            self.instance.trace_dump(*trace_ps);
        }
    }

    fn reset_edge(&mut self, now_ps: u64, domain: Domain) {
        self.tick(now_ps, domain);
        let edge = &mut self.edges[domain as usize];
        if edge.clock.cycles() >= RESET_CYCLES {
            edge.is_in_reset = false;
            self.instance.set(edge.reset_port, 0);
        }
        self.settle(now_ps, domain);
    }

    fn core_edge(&mut self, now_ps: u64) {
        let from_card = self.host_ports.sample(&self.instance, now_ps, &mut self.log);
        let from_slave = self.slave_ports.sample(&self.instance, now_ps, &mut self.log);
        if self.accepted.is_some_and(|port| self.instance.get(port) == 1) {
            self.host.trail_mut().note(now_ps, Moment::FrameAccepted);
        }
        self.tick(now_ps, Domain::Core);
        self.host.cycle(now_ps, &from_card, &mut self.to_card, &mut self.log);
        self.host.register_cycle(now_ps, &from_slave, &mut self.log);
        if self.host.take_reset() {
            self.transmit.reset(now_ps);
        }
        self.host_ports.drive(&mut self.instance, &self.to_card);
        self.slave_ports.drive(&mut self.instance, self.host.registers_mut().drives());
        self.settle(now_ps, Domain::Core);
    }

    fn receive_edge(&mut self, now_ps: u64) {
        self.tick(now_ps, Domain::Receive);
        let beat = self.receive.cycle(now_ps);
        self.instance.set(self.mac_ports.rx_valid, beat.is_some().into());
        if let Some(beat) = &beat {
            self.mac_ports.rx_data.set(&mut self.instance, &beat.data);
            self.mac_ports.rx_keep.set_mask(&mut self.instance, beat.keep);
            self.instance.set(self.mac_ports.rx_last, beat.last.into());
            self.instance.set(self.mac_ports.rx_error, beat.error.into());
            if beat.last {
                self.host.trail_mut().note(now_ps, Moment::FrameReceived);
            }
        }
        self.settle(now_ps, Domain::Receive);
    }

    fn transmit_edge(&mut self, now_ps: u64) -> Option<Departure> {
        let ports = &mut self.mac_ports;
        if self.transmit.is_inside() && !ports.tx.is_offered(&self.instance) {
            self.transmit.lack();
        }
        let departure = if ports.tx.sample(&self.instance, now_ps, &mut self.log) {
            let beat = Beat {
                data: ports.tx_data.get(&self.instance),
                keep: ports.tx_keep.get_mask(&self.instance),
                last: self.instance.get(ports.tx_last) == 1,
                error: self.instance.get(ports.tx_error) == 1,
            };
            if !self.transmit.is_inside() {
                self.host.trail_mut().note(now_ps, Moment::FrameBegins);
            }
            self.transmit.take(now_ps, &beat, &mut self.log)
        } else {
            None
        };
        self.tick(now_ps, Domain::Transmit);
        self.instance.set(self.mac_ports.tx_ready, self.transmit.is_ready(now_ps).into());
        self.settle(now_ps, Domain::Transmit);
        departure
    }

    /// Turns refused accesses that no test has taken into violations.
    pub fn note_faults(&mut self) {
        self.host.check_faults(&mut self.log);
    }

    /// Checks the levels of the pools of a card at rest, in the order of their registers.
    pub fn check_pools(&mut self, now_ps: u64, levels: &[u64], remains: Remains) {
        pools::check(&mut self.log, now_ps, levels, remains);
    }

    /// Reports what must not be left at the end of a run.
    pub fn check_end(&mut self, now_ps: u64) {
        self.host.check_end(now_ps, &mut self.log);
        if self.transmit.is_inside() {
            self.log.report(now_ps, Rule::Frame, || "a frame has begun and not ended".into());
        }
    }
}
