//! The standard bench (design 8): how fast two cards on a wire move messages from one host to the other, how long one message
//! takes, and how fast all of this is simulated. It measures, and never asserts a rate.
//!
//! | Condition | |
//! |---|---|
//! | Cards | two alike, core clock 250 MHz; 100 Gb/s with 512 bits, 10 Gb/s with 64 |
//! | Wire | 500 ns, no faults |
//! | Hosts | answer a read after 0.9 to 1.1 us, half of the reads miss writes that are on their way; report writes done up to 0.5 us late; PCI Express Gen3 x16 |
//! | Messages | from one host to the other, from and to addresses that are not aligned, none inline; READs from the other host to the one that asks |
//! | Receives | twice a window of them, posted 100 us before the first message, and again when they completed |
//! | Requests | each queue pair posts again what has completed, so that its window is always full; see [`Row::signal_every`] |
//!
//! Measured are the frames with payload that the MAC of the sending card begins between two of them while all windows are full,
//! and the time between these two, in core clock cycles. All messages must complete, and the last one of each queue pair must
//! have the right contents.
//!
//! The queue pairs have no retries, so that no figure includes what was sent again. A run in which the receive buffer overflows, because the receiver is much slower than the
//! sender, is repeated with a smaller window; [`Row::window`] is the one that was measured.
mod conditions;
pub mod goodput;
mod load;
pub mod neighbours;
pub(crate) mod plot;
mod wire;

use crate::latency::{self, Latency, Ping};
use crate::{card_options, print_line};
use anyhow::{Context, Result};
pub use conditions::Conditions;
use load::Outcome;
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_layout::limits::ATOMIC_BYTES;
use rnic_layout::path::Pmtu;
use rnic_machine::function::two_cards;
use rnic_machine::function::{SharedWorld, lock};
use rnic_machine::world::{CardOptions, Domain, model_options};
use rnic_workloads::plan::Kind;
use rnic_workloads::{Cards, Plan, PlanOptions};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use verilator_sys::{Model, ModelOptions, Optimization};
pub use wire::Frames;

/// Message lengths of the throughput curve: 2 B to 1 MiB.
const CURVE: [usize; 15] =
    [2, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Messages whose latency is measured.
const PINGS: [Ping; 3] = [
    Ping { bytes: 64, is_inline: true },
    Ping { bytes: 64, is_inline: false },
    Ping { bytes: 4096, is_inline: false },
];

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Operation of all messages.
    pub kind: Kind,
    /// Message length, in bytes.
    pub bytes: usize,
    /// Path MTU of all queue pairs.
    pub pmtu: Pmtu,
    /// Queue pairs of the requester.
    pub queue_pairs: usize,
}

impl Case {
    /// Name in tables: operation, length, PMTU, queue pairs.
    pub fn name(&self) -> String {
        format!("{}_{}_pmtu{}_qp{}", self.operation(), self.bytes, self.pmtu.bytes(), self.queue_pairs)
    }

    fn operation(&self) -> String {
        format!("{:?}", self.kind).to_lowercase()
    }

    /// Card whose frames carry the payload, or the answer of an atomic.
    fn source(&self) -> usize {
        usize::from(self.kind.is_answered())
    }

    /// Frames of one message that carry its payload.
    pub fn frames(&self) -> Frames {
        Frames::new(self.kind, self.bytes, self.pmtu)
    }
}

/// Result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case.
    pub name: String,
    /// Operation, in lower case.
    pub op: String,
    /// Message length, in bytes.
    pub bytes: usize,
    /// Path MTU, in bytes.
    pub pmtu: u32,
    /// Queue pairs.
    pub qps: usize,
    /// Width of the datapath, in bits.
    pub width_bits: u32,
    /// Core clock frequency.
    pub clock_mhz: u32,
    /// Rate of the wire.
    pub line_gbps: f64,
    /// Messages in flight of all queue pairs together; if it is less than the number of queue pairs, they take turns.
    pub window: usize,
    /// One of this many requests of a queue pair is signalled: 32, or half of its window if that is less.
    pub signal_every: usize,
    /// Core clock cycles of the measurement.
    pub cycles: u64,
    /// Messages sent in these cycles.
    pub messages: u64,
    /// Core clock cycles per message.
    pub cycles_per_message: f64,
    /// Rate of payload.
    pub payload_gbps: f64,
    /// Million messages per second.
    pub mmsg_per_s: f64,
    /// Rate of payload on a wire that is saturated with such frames.
    pub wire_payload_gbps: f64,
    /// Measured rate in percent of that.
    pub percent_of_wire: f64,
    /// The same of the messages in the other direction; zero if only one is loaded.
    pub percent_of_wire_against: f64,
    /// Frames in the other direction per message: acknowledgements, or requests of READs and atomics.
    pub frames_back_per_message: f64,
}

/// A case without a result.
#[derive(Clone, Debug, Serialize)]
pub struct NotMeasured {
    /// Name of the case.
    pub name: String,
    /// Width of the datapath, in bits.
    pub width_bits: u32,
    /// Why there is no result.
    pub reason: String,
}

/// Latency of one message on idle cards.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyRow {
    /// Operation, length, and whether inline.
    pub name: String,
    /// Message length, in bytes.
    pub bytes: usize,
    /// The payload is inline data of the WQE.
    pub inline: bool,
    /// Width of the datapath, in bits.
    pub width_bits: u32,
    /// Core clock frequency.
    pub clock_mhz: u32,
    /// Latency, in core clock cycles.
    #[serde(flatten)]
    pub cycles: Latency,
}

/// Speed of the simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// Width of the datapath, in bits.
    pub width_bits: u32,
    /// Core clock cycles of both cards together, over all cases.
    pub card_cycles: u64,
    /// CPU time of the process.
    pub cpu_seconds: f64,
    /// Ratio of these.
    pub card_cycles_per_cpu_second: f64,
    /// Time spent outside of the models (hosts, wire, monitors, drivers), in percent of the time of their evaluation.
    pub percent_around_the_models: f64,
}

/// All results.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings {
    /// Seed of the hosts' behaviour.
    pub seed: u64,
    /// How the hosts differ from the standard ones.
    pub conditions: Conditions,
    /// Throughput, by case.
    pub rows: Vec<Row>,
    /// Cases without a result.
    pub not_measured: Vec<NotMeasured>,
    /// Latency of single messages.
    pub latency: Vec<LatencyRow>,
    /// Speed of the simulation, by width.
    pub simulator: Vec<Speed>,
}

/// Cases of the full bench, or of the quick one.
pub fn cases(is_quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in [Kind::Write, Kind::Send] {
        let mut add = |lengths: &[usize], pmtu: Pmtu, queue_pairs: usize| {
            let one = |&bytes: &usize| Case { kind, bytes, pmtu, queue_pairs };
            cases.extend(lengths.iter().map(one));
        };
        if is_quick {
            add(&[64, 4096, 64 << 10], Pmtu::Bytes4096, 1);
            add(&[1024, 16 << 10], Pmtu::Bytes1024, 1);
            add(&[64], Pmtu::Bytes4096, 64);
        } else {
            add(&CURVE, Pmtu::Bytes4096, 1);
            add(&[1024, 4096, 16 << 10, 64 << 10, 1 << 20], Pmtu::Bytes1024, 1);
            add(&[64, 4096], Pmtu::Bytes4096, 16);
            add(&[64, 4096, 64 << 10], Pmtu::Bytes4096, 64);
            add(&[64], Pmtu::Bytes4096, 1000);
        }
    }
    let mut read = |lengths: &[usize], pmtu: Pmtu, queue_pairs: usize| {
        cases.extend(lengths.iter().map(|&bytes| Case { kind: Kind::Read, bytes, pmtu, queue_pairs }));
    };
    if is_quick {
        read(&[64, 16 << 10], Pmtu::Bytes4096, 1);
        read(&[16 << 10], Pmtu::Bytes1024, 1);
        read(&[64], Pmtu::Bytes4096, 64);
    } else {
        read(&[64, 1024, 4096, 16 << 10, 64 << 10, 1 << 20], Pmtu::Bytes4096, 1);
        read(&[16 << 10, 64 << 10, 1 << 20], Pmtu::Bytes1024, 1);
        read(&[16 << 10, 1 << 20], Pmtu::Bytes256, 1);
        read(&[64, 4096, 16 << 10], Pmtu::Bytes4096, 64);
    }
    let atomic =
        |queue_pairs| Case { kind: Kind::FetchAdd, bytes: ATOMIC_BYTES, pmtu: Pmtu::Bytes4096, queue_pairs };
    cases.extend([1, 64].map(atomic));
    cases
}

/// Cases of the demo's throughput curve, which take little time.
pub fn curve() -> Vec<Case> {
    let lengths = [8, 64, 256, 1024, 4096, 16 << 10, 64 << 10, 1 << 20];
    let of_kind = |kind| lengths.map(|bytes| Case { kind, bytes, pmtu: Pmtu::Bytes4096, queue_pairs: 1 });
    [Kind::Write, Kind::Send].map(of_kind).concat()
}

/// Two cards alike, and the cost of their simulation.
struct Machine<'a> {
    model: &'a Model,
    card: CardOptions,
    seed: u64,
    conditions: Conditions,
    card_cycles: u64,
    evaluation: Duration,
}

impl<'a> Machine<'a> {
    fn new(model: &'a Model, card: CardOptions, findings: &Findings) -> Machine<'a> {
        let Findings { seed, ref conditions, .. } = *findings;
        let conditions = conditions.clone();
        Machine { model, card, seed, conditions, card_cycles: 0, evaluation: Duration::ZERO }
    }

    fn options(&self) -> CardOptions {
        CardOptions { host: self.conditions.apply(self.card.host), ..self.card }
    }

    /// Runs a function with two cards out of reset.
    fn with_two_cards<T>(
        &mut self,
        work: impl FnOnce(&SharedWorld, [load::Card; 2]) -> Result<T>,
    ) -> Result<T> {
        let options = self.options();
        let (world, functions) = two_cards(self.model, [options; 2], options.wire(), self.seed)?;
        (0..2).for_each(|card| lock(&world).card_mut(card).watch_evaluation());
        let result = work(&world, functions);
        let world = lock(&world);
        for card in [world.card(0), world.card(1)] {
            self.card_cycles += card.cycles(Domain::Core);
            self.evaluation += card.evaluation();
        }
        result
    }

    fn row(&mut self, case: &Case) -> Result<Outcome> {
        let (options, seed, conditions) = (self.options(), self.seed, self.conditions.clone());
        let mut window = load::window(case, &options);
        loop {
            let outcome = self.with_two_cards(|world, functions| {
                load::measure(world, functions, &options, &conditions, case, window, seed)
            })?;
            match load::smaller(window) {
                Some(smaller) if matches!(outcome, Outcome::Lost { .. }) => window = smaller,
                _ => return Ok(outcome),
            }
        }
    }

    /// Runs all cases and prints a table.
    fn rows(&mut self, cases: &[Case], findings: &mut Findings) -> Result<()> {
        print_line!(
            "{:<26} {:>8} {:>5} {:>5} {:>7} {:>9} {:>9} {:>11} {:>8} {:>8} {:>6} {:>7} {:>6}",
            "case",
            "bytes",
            "PMTU",
            "QPs",
            "window",
            "messages",
            "cycles",
            "cycles/msg",
            "Mmsg/s",
            "Gb/s",
            "%",
            "against",
            "back"
        );
        for case in cases {
            match self.row(case).with_context(|| case.name())? {
                Outcome::Measured(row) => {
                    print_line!(
                        "{:<26} {:>8} {:>5} {:>5} {:>7} {:>9} {:>9} {:>11.2} {:>8.3} {:>8.2} {:>6.1} {:>7.1} {:>6.3}",
                        row.name,
                        row.bytes,
                        row.pmtu,
                        row.qps,
                        row.window,
                        row.messages,
                        row.cycles,
                        row.cycles_per_message,
                        row.mmsg_per_s,
                        row.payload_gbps,
                        row.percent_of_wire,
                        row.percent_of_wire_against,
                        row.frames_back_per_message
                    );
                    findings.rows.push(*row);
                }
                Outcome::Lost { reason } | Outcome::Impossible { reason } => {
                    print_line!("{:<26} not measured: {reason}", case.name());
                    findings.not_measured.push(NotMeasured {
                        name: case.name(),
                        width_bits: self.model.any_port("mac_tx_tdata")?.width(),
                        reason,
                    });
                }
            }
        }
        Ok(())
    }

    fn latency(&mut self, ping: &Ping) -> Result<Latency> {
        let options = PlanOptions { pmtus: &[Pmtu::Bytes4096], ..PlanOptions::faultless(1, 0) };
        let plan = Plan::new(self.seed, &options);
        self.with_two_cards(|world, functions| {
            let mut cards = Cards::open(&plan, functions)?;
            latency::measure(world, &mut cards, &plan, 0, ping)
        })
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Runs cases on two cards under some conditions, and prints the results.
///
/// # Errors
/// As [`run`].
pub fn measure(
    model: &Model,
    card: CardOptions,
    conditions: &Conditions,
    cases: &[Case],
    seed: u64,
) -> Result<Vec<Row>> {
    let mut findings = Findings { seed, conditions: conditions.clone(), ..Findings::default() };
    Machine::new(model, card, &findings).rows(cases, &mut findings)?;
    Ok(findings.rows)
}

/// Builds a card, runs cases on two of them, adds the results to `findings`, and prints them.
///
/// # Errors
/// If a message fails, the run stalls, a monitor sees a violation, or a tool is missing.
pub fn run(config: &Config, cases: &[Case], findings: &mut Findings) -> Result<()> {
    let width_bits = config.datapath.width_bits;
    let product = generator::generate(config)?;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = Model::build(TOP, &product.verilog, &model_options(options))?;
    let mut machine = Machine::new(&model, card_options(config), findings);
    let wire = machine.options().bits_per_second as f64 / 1e9;
    print_line!(
        "\n{width_bits} bits at {} MHz, {wire} Gb/s, seed {}; % is of a wire full of such frames\n",
        config.datapath.core_clock_mhz,
        findings.seed
    );
    if findings.conditions != Conditions::default() {
        print_line!("not the standard bench: {:?}\n", findings.conditions);
    }
    let (start, cpu_start) = (Instant::now(), cpu_time());
    machine.rows(cases, findings)?;
    print_line!("\ncycles from the doorbell, one SEND at a time: median (shortest, longest)");
    let clock_mhz = config.datapath.core_clock_mhz;
    let mut found = Vec::new();
    for ping in &PINGS {
        let name = format!("send_{}{}", ping.bytes, if ping.is_inline { "_inline" } else { "" });
        let cycles = machine.latency(ping).with_context(|| format!("latency of {name}"))?;
        let (bytes, inline) = (ping.bytes, ping.is_inline);
        found.push(LatencyRow { name, bytes, inline, width_bits, clock_mhz, cycles });
    }
    print_latency(&found);
    findings.latency.extend(found);

    let (cpu, wall) = (cpu_time() - cpu_start, start.elapsed());
    let evaluation = machine.evaluation.as_secs_f64();
    let cpu_seconds = cpu.as_secs_f64();
    let speed = Speed {
        width_bits,
        card_cycles: machine.card_cycles,
        cpu_seconds,
        card_cycles_per_cpu_second: machine.card_cycles as f64 / cpu_seconds,
        percent_around_the_models: (wall.as_secs_f64() - evaluation) / evaluation * 100.0,
    };
    print_line!(
        "\nsimulator: {} card-cycles in {:.1} s of a processor, {:.0} a second; what is around the models adds {:.0} %",
        speed.card_cycles,
        speed.cpu_seconds,
        speed.card_cycles_per_cpu_second,
        speed.percent_around_the_models
    );
    findings.simulator.push(speed);
    Ok(())
}

fn print_latency(rows: &[LatencyRow]) {
    let line = |name: &str, cell: &dyn Fn(&Latency) -> Option<latency::Spread>| {
        let cells = rows.iter().map(|row| match cell(&row.cycles) {
            Some(spread) => format!("{} ({}, {})", spread.median, spread.min, spread.max),
            None => "-".to_string(),
        });
        print_line!("{name:<46}{}", cells.map(|cell| format!(" {cell:>19}")).collect::<String>());
    };
    print_line!("{:<46}{}", "", rows.iter().map(|row| format!(" {:>19}", row.name)).collect::<String>());
    for stage in latency::STAGES {
        line(stage, &|latency| latency.stages.get(stage).copied());
    }
    line("the card's own, doorbell to wire", &|latency| Some(latency.card_doorbell_to_wire));
    line("the card's own, wire to completion", &|latency| Some(latency.card_wire_to_completion));
}

/// Writes all results as JSON, and the figure beside it.
///
/// # Errors
/// If a file cannot be written.
pub fn write(findings: &Findings, path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(findings)? + "\n";
    std::fs::write(path, text).with_context(|| format!("{}", path.display()))?;
    plot::draw(findings, &path.with_extension("svg"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_case_is_measured_twice_and_a_quick_bench_leaves_cases_out() {
        let (whole, quick) = (cases(false), cases(true));
        let names: BTreeSet<String> = whole.iter().map(Case::name).collect();
        assert_eq!(names.len(), whole.len());
        assert!(quick.len() < whole.len() && quick.iter().all(|case| names.contains(&case.name())));
    }
}
