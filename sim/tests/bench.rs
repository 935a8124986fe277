//! The standard bench on the card at 64 bits.
#[path = "support/model.rs"]
mod model;

use anyhow::{Result, ensure};
use model::card_model;
use rnic_layout::path::Pmtu;
use rnic_sim::bench::{self, Case};
use rnic_workloads::plan::Kind;

/// The bench finds nothing that is faster than the wire, and messages of many packets not far below it.
#[test]
fn the_bench_measures_what_a_wire_carries() -> Result<()> {
    let case = |kind| Case { kind, bytes: 20_000, pmtu: Pmtu::Bytes1024, queue_pairs: 2 };
    let cases = [Kind::Write, Kind::Send, Kind::Read].map(case);
    let rows = bench::measure(&card_model(64)?, 64, &cases, 1)?;
    for row in rows {
        ensure!((50.0..100.01).contains(&row.percent_of_wire), "{row:?}");
    }
    Ok(())
}
