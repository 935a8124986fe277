//! The demo's report: rates of two cards, latency by stage, and captured frames in the packet path.
use crate::bench::plot;
use crate::demo::Summary;
use crate::latency::STAGES;
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

/// Captures for which the figure has room; it grows by [`CAPTURE_HEIGHT`] pixels for each further one.
const CAPTURES_IN_HEIGHT: usize = 24;
const CAPTURE_HEIGHT: u32 = 24;

/// Draws rates by message length, latency by stage, frames by opcode, and rates by capture.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(summary: &Summary, path: &Path) -> Result<()> {
    draw_panels(summary, path).map_err(|error| anyhow!("{}: {error}", path.display()))
}

fn draw_panels(summary: &Summary, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (cards, captures) = (&summary.cards, &summary.captures);
    let more = captures.each.len().saturating_sub(CAPTURES_IN_HEIGHT) as u32 * CAPTURE_HEIGHT;
    let area = SVGBackend::new(path, (1200, 1400 + more)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!(
        "{} messages between two cards, {} captured frames: {} bits at {} MHz",
        cards.messages, captures.frames, summary.config.datapath.width_bits, summary.clock_mhz
    );
    let area = area.titled(&title, ("sans-serif", 24))?;
    let (rates, area) = area.split_vertically(440);
    plot::panels(&rates, summary.config.datapath.width_bits, &summary.curve)?;
    let (top, bottom) = area.split_vertically(340);
    let (left, right) = bottom.split_horizontally(600);
    let lengths: Vec<usize> = cards.latency_by_length.keys().copied().collect();
    let seen = STAGES.into_iter().filter(|stage| cards.latency_cycles.contains_key(*stage));
    let stages: Vec<(String, f64)> = seen
        .flat_map(|stage| {
            let cycles = cards.latency_by_length.values().map(move |stages| stages.get(stage));
            cycles.map(move |spread| (stage.to_string(), spread.map_or(0.0, |spread| spread.median as f64)))
        })
        .collect();
    let names: Vec<String> = lengths.iter().map(usize::to_string).collect();
    let caption = format!(
        "cycles from the doorbell, by stage, for messages of {} bytes (from dark to light)",
        names.join(" and ")
    );
    bars(&top, &caption, &stages, &[BLUE.mix(0.7), BLUE.mix(0.3)], lengths.len())?;
    let counts: Vec<(String, f64)> =
        captures.opcodes.iter().map(|(name, count)| (name.clone(), *count as f64)).collect();
    bars(&left, "captured frames by opcode", &counts, &[BLUE.mix(0.7)], 1)?;
    let rates: Vec<(String, f64)> = captures
        .each
        .iter()
        .flat_map(|row| {
            [
                (format!("{} in", row.capture), row.receive_gbps),
                (format!("{} out", row.capture), row.transmit_gbps),
            ]
        })
        .collect();
    bars(&right, "Gb/s by capture, in (dark) and out (light)", &rates, &[BLUE.mix(0.7), BLUE.mix(0.3)], 2)?;
    area.present()?;
    Ok(())
}

/// Horizontal bars with labels. `group` bars share a line; the colours repeat.
fn bars(
    area: &DrawingArea<SVGBackend, plotters::coord::Shift>,
    caption: &str,
    rows: &[(String, f64)],
    colours: &[RGBAColor],
    group: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let most = rows.iter().map(|row| row.1).fold(1.0, f64::max) * 1.15;
    let lines = rows.len() / group.max(1);
    let label = |line: usize| {
        let name = &rows[line * group].0;
        name.strip_suffix(" in").unwrap_or(name).to_string()
    };
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(210)
        .build_cartesian_2d(0.0..most, 0.0..lines.max(1) as f64)?;
    chart.configure_mesh().disable_y_mesh().y_labels(0).x_labels(6).draw()?;
    let height = 0.8 / group as f64;
    for (index, (_, value)) in rows.iter().enumerate() {
        let top = lines as f64 - (index / group) as f64 - 0.1 - (index % group) as f64 * height;
        let colour = colours[index % colours.len()];
        chart.draw_series([Rectangle::new([(0.0, top - height), (*value, top)], colour.filled())])?;
        let text = if *value == value.trunc() { format!("{value:.0}") } else { format!("{value:.1}") };
        let place = (*value + most * 0.01, top - height * 0.15);
        chart.draw_series([Text::new(text, place, ("sans-serif", 11).into_font())])?;
    }
    let plotting = chart.plotting_area().clone();
    for line in 0..lines {
        let (x, y) = plotting.map_coordinate(&(0.0, lines as f64 - line as f64 - 0.5));
        let style = ("sans-serif", 12).into_font().color(&BLACK);
        let anchor = plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Right,
            plotters::style::text_anchor::VPos::Center,
        );
        let base = area.get_base_pixel();
        area.draw_text(&label(line), &style.pos(anchor), (x - base.0 - 6, y - base.1))?;
    }
    Ok(())
}
