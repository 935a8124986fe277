//! Goodput of one queue pair that must send again: WRITEs of 64 KiB against loss, against reordering, and against the latency of the
//! host, beside the bound of go-back-N (protocol 5.3).
//!
//! | Condition | |
//! |---|---|
//! | Load | one queue pair with WRITEs of 64 KiB, whose window of messages is always full |
//! | Loss | frames of both directions, so acknowledgements as well, with equal probability and independent of each other |
//! | Reordering | frames of the WRITEs are held back by 2 us, so that those behind overtake them |
//! | Timeout | the shortest T for which the window is on the wire in 80 % of it, 65.5 us at 100 Gb/s: a packet that is lost twice is sent again by the timer only (protocol 2.6, 3.2) |
//! | Measured | bytes of messages that complete, between the first and the last completion after a warm-up; everything that is sent and fetched again counts as time |
//!
//! The rest is the standard bench. The bound is 1 / (1 + p W) of the wire, where p is the probability and W the window in packets: as
//! if all that is in flight at a loss were sent again. A card that learns of the loss earlier is better than that.
use super::load::{Load, Progress, Window};
use super::{Case, Conditions, lock};
use crate::{card_options, print_line};
use anyhow::{Context, Result, bail, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use rnic_driver::{Device, SendOptions};
use rnic_hdl::config::Config;
use rnic_hdl::generator::{self, TOP};
use rnic_layout::path::Pmtu;
use rnic_layout::registers::counter;
use rnic_machine::function::two_cards;
use rnic_machine::host::HostOptions;
use rnic_machine::wire::WireOptions;
use rnic_machine::world::{CardOptions, model_options};
use rnic_stimulus::chance::{Delay, Seed};
use rnic_workloads::cards;
use rnic_workloads::plan::Kind;
use serde::Serialize;
use std::path::Path;
use verilator_sys::{Model, ModelOptions, Optimization};

/// Bytes of a message, and messages in flight.
const BYTES: usize = 64 << 10;
const WINDOW: usize = 8;
/// Unit of T, in picoseconds.
const TIMER_UNIT_PS: u64 = 4_096_000;
/// Time for which a frame is held back that others overtake, in picoseconds.
const HELD_PS: u64 = 2_000_000;
/// Losses that a measurement waits for, and its length in messages.
const EVENTS: f64 = 30.0;
const MESSAGES: std::ops::RangeInclusive<usize> = 120..=2400;
/// Calls of `idle` without a completion after which a run has stalled: 20 ms.
const IDLE_MAX: usize = 200_000;
/// Probabilities, in percent, and latencies of the host, in microseconds.
const PERCENT: [f64; 7] = [0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 5.0];
const LATENCY_US: [f64; 7] = [0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0];

/// A curve of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Curve {
    /// Frames that are lost.
    Loss,
    /// Frames that are overtaken.
    Reordering,
    /// The latency of the host.
    Host,
}

/// What the goodput is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// Frames that are lost, in percent.
    Loss(f64),
    /// Frames that are overtaken, in percent.
    Reordering(f64),
    /// Latency of the host in microseconds, without loss.
    HostLatency(f64),
}

impl Against {
    /// All points of these curves, or of all if none is named.
    pub fn points(curves: &[Curve]) -> Vec<Against> {
        let loss = PERCENT.into_iter().map(Against::Loss);
        let reordering = PERCENT.into_iter().map(Against::Reordering);
        let all = loss.chain(reordering).chain(LATENCY_US.into_iter().map(Against::HostLatency));
        all.filter(|point| curves.is_empty() || curves.contains(&point.curve())).collect()
    }

    /// The curve of this point.
    fn curve(self) -> Curve {
        match self {
            Against::Loss(_) => Curve::Loss,
            Against::Reordering(_) => Curve::Reordering,
            Against::HostLatency(_) => Curve::Host,
        }
    }

    /// Probability that a frame is not where it should be.
    fn probability(self) -> f64 {
        match self {
            Against::Loss(percent) | Against::Reordering(percent) => percent / 100.0,
            Against::HostLatency(_) => 0.0,
        }
    }

    /// Options of both directions of the wire: that of the WRITEs, and that of the acknowledgements.
    fn wire(self, perfect: WireOptions) -> [WireOptions; 2] {
        let probability = self.probability();
        match self {
            Against::Loss(_) => [WireOptions { loss: probability, ..perfect }; 2],
            Against::Reordering(_) => {
                let reorder_delay = Delay::Fixed { ps: HELD_PS };
                [WireOptions { reorder: probability, reorder_delay, ..perfect }, perfect]
            }
            Against::HostLatency(_) => [perfect; 2],
        }
    }

    fn host(self, standard: HostOptions) -> HostOptions {
        match self {
            Against::HostLatency(us) => {
                let ps = us * 1e6;
                let read_latency = Delay::Uniform { min_ps: (ps * 0.9) as u64, max_ps: (ps * 1.1) as u64 };
                HostOptions { read_latency, ..standard }
            }
            _ => standard,
        }
    }

    /// Messages of the measurement: long enough for some losses. Without any the rate hardly varies, and few are enough. It is
    /// whole windows, so that the last message of the run is a signalled one.
    fn messages(self, packets: usize) -> usize {
        let probability = self.probability();
        if probability == 0.0 {
            return *MESSAGES.start();
        }
        let wanted = EVENTS / probability / packets as f64;
        (wanted as usize).clamp(*MESSAGES.start(), *MESSAGES.end()).next_multiple_of(WINDOW)
    }

    /// Bound of go-back-N for a window of packets, as a share of the wire (protocol 5.3).
    fn bound(self, window_packets: usize) -> f64 {
        1.0 / (1.0 + self.probability() * window_packets as f64)
    }

    fn name(self) -> String {
        match self {
            Against::Loss(percent) => format!("{percent} % lost"),
            Against::Reordering(percent) => format!("{percent} % overtaken"),
            Against::HostLatency(us) => format!("host of {us} us"),
        }
    }
}

/// Smallest timeout, as log2 of units, of which a window takes 80 % at most.
fn timeout_of(window_ps: f64) -> u8 {
    (window_ps / 0.8 / TIMER_UNIT_PS as f64).log2().ceil().max(1.0) as u8
}

/// A point of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// What it is measured against.
    pub against: Against,
    /// Width of the datapath, in bits.
    pub width_bits: u32,
    /// Path MTU, in bytes.
    pub pmtu: u32,
    /// Window, in packets.
    pub window_packets: usize,
    /// Messages that were measured.
    pub messages: usize,
    /// Frames that were lost, or overtaken, in the whole run.
    pub met: u64,
    /// Request packets that were sent again, and timers that expired, in the whole run.
    pub packets_again: u64,
    /// See `packets_again`.
    pub timeouts: u64,
    /// Payload of messages that completed.
    pub gbps: f64,
    /// The same in percent of what the wire takes.
    pub percent_of_wire: f64,
    /// Bound of go-back-N in percent of what the wire takes.
    pub percent_bound: f64,
}

/// Measures one point, with so many messages.
///
/// # Errors
/// If a message fails, the run stalls, or a monitor sees a violation.
pub fn point(
    model: &Model,
    standard: CardOptions,
    pmtu: Pmtu,
    against: Against,
    measured: usize,
    seed: u64,
) -> Result<Point> {
    let case = Case { kind: Kind::Write, bytes: BYTES, pmtu, queue_pairs: 1 };
    let frames = case.frames();
    let ideal = CardOptions { host: HostOptions::IDEAL, ..standard };
    let (world, functions) = two_cards(model, [ideal; 2], standard.wire(), seed)?;
    let width_bits = lock(&world).card(0).width_bits() as u32;
    let clock = functions[0].clone();
    let [first, second] = functions;
    let devices = [
        Device::open(first, cards::options(Seed(seed), 0))?,
        Device::open(second, cards::options(Seed(seed), 1))?,
    ];
    let timeout =
        timeout_of((WINDOW * BYTES) as f64 * 8e12 / frames.payload_gbps(standard.bits_per_second) / 1e9);
    let send = SendOptions { timeout, retry_count: 7, ..SendOptions::default() };
    let window = Window { each: WINDOW, all: WINDOW };
    let regions = Conditions::default().regions as usize;
    let mut load = Load::new([&devices[0], &devices[1]], &case, window, regions, send)?;
    let set = |host: HostOptions, wire: [WireOptions; 2]| {
        let mut world = lock(&world);
        for (side, wire) in wire.into_iter().enumerate() {
            world.host_mut(side).set_options(host);
            world.direction_mut(0, side).set_options(wire);
        }
    };
    set(against.host(standard.host), against.wire(standard.wire()));
    let (from, to) = (2 * WINDOW, 2 * WINDOW + measured);
    let end = to + 2 * WINDOW;
    let (mut begin, mut finish) = (None, None);
    let mut idle = 0;
    while !load.is_done(end) {
        load.post(end)?;
        clock.idle();
        idle += 1;
        match load.poll()? {
            Progress::Lost => bail!("{}: the queue pair has no retries left", against.name()),
            Progress::Some => idle = 0,
            Progress::None => ensure!(idle < IDLE_MAX, "{}: the run has stalled", against.name()),
        }
        let now = || (load.sent, lock(&world).now_ps());
        begin = begin.or_else(|| (load.sent >= from).then(now));
        finish = finish.or_else(|| (load.sent >= to).then(now));
    }
    let (met, [packets_again, timeouts]) = {
        let mut world = lock(&world);
        world.check()?;
        let values = world.counters(0)?;
        let met: u64 = world.wire_counts(0).iter().map(|counts| counts.lost + counts.reordered).sum();
        (met, ["packets_retransmitted", "timeout"].map(|name| values[counter(name)]))
    };
    set(HostOptions::IDEAL, [standard.wire(); 2]);
    load.verify()?;
    lock(&world).finish()?;
    drop(load);
    drop(devices);
    lock(&world).finish()?;
    let (begin, finish) = begin.zip(finish).context("nothing was measured")?;
    let messages = finish.0 - begin.0;
    let gbps = (messages * BYTES * 8) as f64 / ((finish.1 - begin.1) as f64 * 1e-12) / 1e9;
    let window_packets = WINDOW * frames.count;
    Ok(Point {
        against,
        width_bits,
        pmtu: pmtu.bytes(),
        window_packets,
        messages,
        met,
        packets_again,
        timeouts,
        gbps,
        percent_of_wire: gbps / frames.payload_gbps(standard.bits_per_second) * 100.0,
        percent_bound: 100.0 * against.bound(window_packets),
    })
}

/// Builds a card, measures points with two of them, and prints a table.
///
/// # Errors
/// As [`point`], or if a tool is missing.
pub fn run(config: &Config, against: &[Against], seed: u64) -> Result<Vec<Point>> {
    let width_bits = config.datapath.width_bits;
    let product = generator::generate(config)?;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = Model::build(TOP, &product.verilog, &model_options(options))?;
    let window = WINDOW * (BYTES / Pmtu::Bytes4096.bytes() as usize);
    print_line!(
        "{width_bits} bits, WRITEs of 64 KiB, {WINDOW} in flight: {window} packets; seed {seed}; % is of a full wire\n"
    );
    points(&model, card_options(config), against, seed)
}

/// Measures points, and prints a table.
fn points(model: &Model, standard: CardOptions, points: &[Against], seed: u64) -> Result<Vec<Point>> {
    print_line!(
        "{:<18} {:>9} {:>6} {:>7} {:>9} {:>8} {:>7} {:>7}",
        "against",
        "messages",
        "met",
        "again",
        "timeouts",
        "Gb/s",
        "%",
        "bound"
    );
    let measure = |&against: &Against| {
        let pmtu = Pmtu::Bytes4096;
        let measured = against.messages(BYTES / pmtu.bytes() as usize);
        let point = point(model, standard, pmtu, against, measured, seed).with_context(|| against.name())?;
        print_line!(
            "{:<18} {:>9} {:>6} {:>7} {:>9} {:>8.2} {:>7.1} {:>7.1}",
            against.name(),
            point.messages,
            point.met,
            point.packets_again,
            point.timeouts,
            point.gbps,
            point.percent_of_wire,
            point.percent_bound
        );
        Ok(point)
    };
    points.iter().map(measure).collect()
}

/// Writes points as JSON, and the curves beside it.
///
/// # Errors
/// If a file cannot be written.
pub fn write(points: &[Point], path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(points)? + "\n";
    std::fs::write(path, text).with_context(|| format!("{}", path.display()))?;
    let svg = path.with_extension("svg");
    draw(points, &svg).map_err(|error| anyhow::anyhow!("{}: {error}", svg.display()))
}

/// Where a curve shows the value without loss, on an axis that is logarithmic.
const NONE_PERCENT: f64 = 0.004;

/// Points of one curve, with their places on its axis.
fn curve(points: &[Point], place: impl Fn(Against) -> Option<f64>) -> Vec<(f64, &Point)> {
    points.iter().filter_map(|point| Some((place(point.against)?, point))).collect()
}

fn draw(points: &[Point], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, (1200, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((1, 3));
    let loss = curve(points, |against| match against {
        Against::Loss(percent) => Some(percent.max(NONE_PERCENT)),
        _ => None,
    });
    let reordering = curve(points, |against| match against {
        Against::Reordering(percent) => Some(percent.max(NONE_PERCENT)),
        _ => None,
    });
    let latency = curve(points, |against| match against {
        Against::HostLatency(us) => Some(us),
        _ => None,
    });
    let percent = NONE_PERCENT / 1.3..7.0;
    panel(&panels[0], "frames lost, %", percent.clone(), &loss, true)?;
    panel(&panels[1], "frames overtaken, %", percent, &reordering, true)?;
    panel(&panels[2], "latency of the host, us", 0.25..12.0, &latency, false)?;
    area.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend, Shift>,
    what: &str,
    range: std::ops::Range<f64>,
    points: &[(f64, &Point)],
    has_bound: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(12).x_label_area_size(42).y_label_area_size(48);
    let caption = "goodput, % of the wire";
    builder.caption(caption, ("sans-serif", 16));
    let mut chart = builder.build_cartesian_2d(range.log_scale(), 0.0..105.0)?;
    let label = |value: &f64| if *value < NONE_PERCENT * 1.1 { "0".to_string() } else { format!("{value}") };
    chart
        .configure_mesh()
        .x_desc(what)
        .x_labels(6)
        .x_label_formatter(&label)
        .light_line_style(WHITE)
        .draw()?;
    let (blue, grey) = (RGBColor(0x1f, 0x4e, 0xa0), RGBColor(0x77, 0x77, 0x77));
    let measured = points.iter().map(|(x, point)| (*x, point.percent_of_wire));
    chart
        .draw_series(LineSeries::new(measured.clone(), blue.stroke_width(2)))?
        .label("measured")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], blue.stroke_width(2)));
    chart.draw_series(measured.map(|point| Circle::new(point, 4, blue.filled())))?;
    if has_bound {
        let bound = points.iter().map(|(x, point)| (*x, point.percent_bound));
        chart
            .draw_series(LineSeries::new(bound, grey.stroke_width(1)))?
            .label("bound of go-back-N")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], grey.stroke_width(1)));
    }
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::LowerLeft).background_style(WHITE).border_style(BLACK.mix(0.3));
    labels.draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point_of(against: Against) -> Point {
        let window_packets = 128;
        Point {
            against,
            width_bits: 512,
            pmtu: 4096,
            window_packets,
            messages: 100,
            met: 1,
            packets_again: 10,
            timeouts: 0,
            gbps: 50.0,
            percent_of_wire: 51.0,
            percent_bound: 100.0 * against.bound(window_packets),
        }
    }

    #[test]
    fn every_point_is_drawn() {
        let points: Vec<Point> = Against::points(&[]).into_iter().map(point_of).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("goodput.json");
        write(&points, &path).unwrap();
        let svg = std::fs::read_to_string(path.with_extension("svg")).unwrap();
        assert_eq!(svg.matches("<circle").count(), points.len());
        for name in ["frames lost, %", "frames overtaken, %", "latency of the host, us", "bound of go-back-N"]
        {
            assert!(svg.contains(name), "{name}");
        }
    }

    /// Protocol 5.3: W = 256 and p = 0.1 % give about 80 %, p = 1 % about 28 %.
    #[test]
    fn the_bound_is_that_of_the_protocol() {
        let bound = |percent| Against::Loss(percent).bound(256);
        assert!((bound(0.1) - 0.796).abs() < 0.001 && (bound(1.0) - 0.281).abs() < 0.001);
    }

    #[test]
    fn the_timeout_is_longer_than_the_window() {
        // 512 KiB at 98.0 and at 9.8 Gb/s.
        assert_eq!([42.8e6, 428e6].map(timeout_of), [4, 8]);
    }

    #[test]
    fn more_loss_takes_fewer_messages() {
        let messages = |percent| Against::Loss(percent).messages(16);
        assert_eq!((messages(0.01), messages(0.1), messages(5.0)), (2400, 1880, 120));
        assert_eq!((messages(0.0), Against::HostLatency(10.0).messages(16)), (120, 120));
    }
}
