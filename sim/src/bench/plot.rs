//! Figure of the bench: throughput and message rate over message length, and the capacity of the wire.
use super::wire::Frames;
use super::{Findings, Row};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use rnic_layout::path::Pmtu;
use rnic_workloads::plan::Kind;
use std::path::Path;

/// Range of message lengths.
const BYTES: std::ops::Range<f64> = 1.0..(1 << 20) as f64;
/// Points of the curve of the wire's capacity.
const CEILING_POINTS: usize = 400;
/// Curves: operation, PMTU, colour, and whether the symbol is filled.
const CURVES: [(Kind, Pmtu, RGBColor, bool); 6] = [
    (Kind::Write, Pmtu::Bytes4096, RGBColor(0x1f, 0x4e, 0xa0), true),
    (Kind::Send, Pmtu::Bytes4096, RGBColor(0xc0, 0x39, 0x2b), true),
    (Kind::Read, Pmtu::Bytes4096, RGBColor(0x1e, 0x8e, 0x4e), true),
    (Kind::Write, Pmtu::Bytes1024, RGBColor(0x6f, 0x9b, 0xdc), false),
    (Kind::Send, Pmtu::Bytes1024, RGBColor(0xe8, 0x96, 0x8a), false),
    (Kind::Read, Pmtu::Bytes1024, RGBColor(0x8f, 0xcf, 0xa8), false),
];

/// Quantity on the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Throughput,
    Rate,
}

impl Axis {
    fn of_row(self, row: &Row) -> f64 {
        match self {
            Axis::Throughput => row.payload_gbps,
            Axis::Rate => row.mmsg_per_s,
        }
    }

    fn of_wire(self, frames: &Frames, bits_per_second: u64) -> f64 {
        match self {
            Axis::Throughput => frames.payload_gbps(bits_per_second),
            Axis::Rate => frames.most_a_second(bits_per_second) / 1e6,
        }
    }
}

/// Draws two panels for each width that was measured.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn draw(findings: &Findings, path: &Path) -> Result<()> {
    draw_all(findings, path).map_err(|error| anyhow!("{}: {error}", path.display()))
}

fn draw_all(findings: &Findings, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut widths: Vec<u32> = findings.rows.iter().map(|row| row.width_bits).collect();
    widths.sort_unstable_by(|left, right| right.cmp(left));
    widths.dedup();
    let area = SVGBackend::new(path, (1280, 80 + 480 * widths.len() as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = "One queue pair, two cards, a host of 1 us behind PCIe Gen3 x16";
    let area = area.titled(title, ("sans-serif", 22))?;
    for (width_bits, line) in widths.iter().zip(area.split_evenly((widths.len().max(1), 1))) {
        panels(&line, *width_bits, &findings.rows)?;
    }
    area.present()?;
    Ok(())
}

/// Draws throughput and message rate of one width, side by side.
pub(crate) fn panels(
    area: &DrawingArea<SVGBackend, Shift>,
    width_bits: u32,
    rows: &[Row],
) -> Result<(), Box<dyn std::error::Error>> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.width_bits == width_bits && row.qps == 1).collect();
    let (left, right) = area.split_horizontally(area.dim_in_pixel().0 as i32 / 2);
    panel(&left, Axis::Throughput, width_bits, &rows)?;
    panel(&right, Axis::Rate, width_bits, &rows)
}

fn panel(
    area: &DrawingArea<SVGBackend, Shift>,
    axis: Axis,
    width_bits: u32,
    rows: &[&Row],
) -> Result<(), Box<dyn std::error::Error>> {
    let (gbps, mhz) = rows.first().map_or((0.0, 0), |row| (row.line_gbps, row.clock_mhz));
    let wire = (gbps * 1e9) as u64;
    let text = match axis {
        Axis::Throughput => "payload, Gb/s",
        Axis::Rate => "million messages a second",
    };
    let caption = format!("{text}; dashed: limit of {gbps} Gb/s. {width_bits} bits at {mhz} MHz");
    let mut builder = ChartBuilder::on(area);
    builder.caption(caption, ("sans-serif", 17)).margin(12).x_label_area_size(42).y_label_area_size(56);
    let x = BYTES.log_scale().base(2.0);
    // The two axes have different types, but the code is the same.
    macro_rules! fill {
        ($chart:expr) => {{
            let mut chart = $chart;
            let mut mesh = chart.configure_mesh();
            mesh.x_labels(10).x_label_formatter(&|bytes| size(*bytes)).x_desc("bytes of a message");
            mesh.y_labels(11).y_label_formatter(&|value| number(*value)).light_line_style(WHITE).draw()?;
            for (kind, pmtu, colour, is_filled) in CURVES {
                let points = points(axis, kind, pmtu, rows);
                if points.is_empty() {
                    continue;
                }
                let ceiling = ceiling(axis, kind, pmtu, wire);
                chart.draw_series(DashedLineSeries::new(ceiling, 5, 4, colour.mix(0.6).stroke_width(1)))?;
                let name = format!("{}, PMTU {}", format!("{kind:?}").to_uppercase(), pmtu.bytes());
                let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
                chart
                    .draw_series(line)?
                    .label(name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(2)));
                let style = if is_filled { colour.filled() } else { colour.stroke_width(2) };
                chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, style)))?;
            }
            let corner = match axis {
                Axis::Throughput => SeriesLabelPosition::LowerRight,
                Axis::Rate => SeriesLabelPosition::LowerLeft,
            };
            let mut labels = chart.configure_series_labels();
            labels.position(corner).background_style(WHITE).border_style(BLACK.mix(0.3)).draw()?;
        }};
    }
    match axis {
        Axis::Throughput => fill!(builder.build_cartesian_2d(x, 0.0..gbps)?),
        Axis::Rate => {
            let most = Frames::new(Kind::Send, 2, Pmtu::Bytes4096).most_a_second(wire) / 1e6;
            let least =
                Frames::new(Kind::Write, BYTES.end as usize, Pmtu::Bytes1024).most_a_second(wire) / 1e6;
            fill!(builder.build_cartesian_2d(x, (least / 2.0..most * 1.5).log_scale())?)
        }
    }
    Ok(())
}

/// Measured values, by length.
fn points(axis: Axis, kind: Kind, pmtu: Pmtu, rows: &[&Row]) -> Vec<(f64, f64)> {
    let op = format!("{kind:?}").to_lowercase();
    let rows = rows.iter().filter(|row| row.op == op && row.pmtu == pmtu.bytes());
    let mut points: Vec<(f64, f64)> = rows.map(|row| (row.bytes as f64, axis.of_row(row))).collect();
    points.sort_by(|left, right| left.0.total_cmp(&right.0));
    points
}

/// Capacity of the wire, by length.
fn ceiling(axis: Axis, kind: Kind, pmtu: Pmtu, wire: u64) -> impl Iterator<Item = (f64, f64)> + Clone {
    let span = (BYTES.end / BYTES.start).log2();
    (0..=CEILING_POINTS).map(move |index| {
        let bytes = BYTES.start * 2_f64.powf(span * index as f64 / CEILING_POINTS as f64);
        let frames = Frames::new(kind, bytes.round() as usize, pmtu);
        (bytes.round(), axis.of_wire(&frames, wire))
    })
}

fn size(bytes: f64) -> String {
    match bytes {
        ..1024.0 => format!("{bytes:.0}"),
        ..1048576.0 => format!("{:.0} Ki", bytes / 1024.0),
        _ => format!("{:.0} Mi", bytes / 1048576.0),
    }
}

fn number(value: f64) -> String {
    if value < 1.0 && value > 0.0 { format!("{value}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::super::{Case, Row};
    use super::*;

    fn row(kind: Kind, bytes: usize, pmtu: Pmtu) -> Row {
        let case = Case { kind, bytes, pmtu, queue_pairs: 1 };
        let frames = case.frames();
        let wire = 100_000_000_000;
        Row {
            name: case.name(),
            op: format!("{kind:?}").to_lowercase(),
            bytes,
            pmtu: pmtu.bytes(),
            qps: 1,
            width_bits: 512,
            clock_mhz: 250,
            line_gbps: 100.0,
            window: 512,
            signal_every: 32,
            cycles: 40_000,
            messages: 1,
            cycles_per_message: 1.0,
            payload_gbps: frames.payload_gbps(wire),
            mmsg_per_s: frames.most_a_second(wire) / 1e6,
            wire_payload_gbps: frames.payload_gbps(wire),
            percent_of_wire: 100.0,
            percent_of_wire_against: 0.0,
            frames_back_per_message: 0.1,
        }
    }

    #[test]
    fn every_row_has_its_point_and_every_curve_its_name() {
        let mut findings = Findings::default();
        for (kind, pmtu, ..) in CURVES {
            findings.rows.extend([64, 1 << 20].map(|bytes| row(kind, bytes, pmtu)));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bench.svg");
        draw(&findings, &path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("<circle").count(), 2 * findings.rows.len());
        for name in [
            "WRITE, PMTU 4096",
            "SEND, PMTU 1024",
            "64 Ki",
            "1 Mi",
            "payload, Gb/s; dashed: limit of 100 Gb/s",
        ] {
            assert!(text.contains(name), "{name}");
        }
    }
}
