//! The standard bench: what it measures at 64 bits, and floors of the rates at 512 bits.
#[path = "support/model.rs"]
mod model;

use anyhow::{Result, bail, ensure};
use model::card_model;
use rnic_layout::path::Pmtu;
use rnic_machine::world::CardOptions;
use rnic_sim::bench::goodput::{self, Against};
use rnic_sim::bench::neighbours::{self, Noise};
use rnic_sim::bench::{self, Case, Conditions};
use rnic_workloads::plan::Kind;
use std::env::VarError;

/// The bench finds nothing that is faster than the wire, and messages of many packets not far below it.
#[test]
fn the_bench_measures_what_a_wire_carries() -> Result<()> {
    // READs of two queue pairs are answered by turns, so one may have been answered in part when a measurement begins.
    let case = |(kind, queue_pairs)| Case { kind, bytes: 20_000, pmtu: Pmtu::Bytes1024, queue_pairs };
    let cases = [(Kind::Write, 2), (Kind::Send, 2), (Kind::Read, 1)].map(case);
    let rows =
        bench::measure(&card_model(64)?, CardOptions::standard(64), &Conditions::default(), &cases, 1)?;
    for row in rows {
        ensure!((50.0..100.01).contains(&row.percent_of_wire), "{row:?}");
    }
    Ok(())
}

/// Both directions at once are nearly as fast as one, and messages that use seven regions in turn as fast as those of one region.
/// The floors are what was measured, rounded down. WRITEs and SENDs lose what the acknowledgements take that a direction carries
/// for the other. READs need more in flight: a request waits for the responses that leave before it.
#[test]
fn both_directions_and_many_regions_are_as_fast_as_one() -> Result<()> {
    let floors = [(Kind::Write, 2, 99.5), (Kind::Send, 2, 99.5), (Kind::Read, 8, 99.0)];
    let cases =
        floors.map(|(kind, queue_pairs, _)| Case { kind, bytes: 20_000, pmtu: Pmtu::Bytes1024, queue_pairs });
    let model = card_model(64)?;
    let measure = |conditions| bench::measure(&model, CardOptions::standard(64), &conditions, &cases, 1);
    let one = measure(Conditions::default())?;
    let both = measure(Conditions { both_ways: true, ..Conditions::default() })?;
    let many = measure(Conditions { regions: 7, ..Conditions::default() })?;
    ensure!([&one, &both, &many].iter().all(|rows| rows.len() == cases.len()), "cases were not measured");
    for (row, (.., floor)) in both.iter().zip(floors) {
        // A measurement begins and ends with ACKs, each of which may wait for a frame of the other direction.
        let one_frame = 100.0 / (row.messages * 20_000_u64.div_ceil(1024)) as f64;
        for percent in [row.percent_of_wire, row.percent_of_wire_against] {
            ensure!((floor..100.01 + one_frame).contains(&percent), "not {floor} %: {row:?}");
        }
    }
    for (one, many) in one.iter().zip(&many) {
        let difference = one.percent_of_wire - many.percent_of_wire;
        ensure!(difference.abs() < 0.1 && one.percent_of_wire_against == 0.0, "{one:?} {many:?}");
    }
    Ok(())
}

/// A queue pair with short messages has its share of the wire, and does not wait long, beside one with long ones; and beside every
/// neighbour where `RNIC_NEIGHBOURS` is `all`, as in `scripts/soak.sh`.
#[test]
fn neighbours_leave_a_queue_pair_its_share() -> Result<()> {
    let noises = match std::env::var("RNIC_NEIGHBOURS") {
        Err(VarError::NotPresent) => &[Noise::LargeWrites][..],
        Ok(value) if value == "all" => &Noise::ALL,
        other => bail!("RNIC_NEIGHBOURS is {other:?}; allowed is `all`"),
    };
    for &noise in noises {
        let kept = neighbours::beside(&card_model(512)?, CardOptions::standard(512), noise, 1)?;
        // The bar is 90 % of the fair share, or of half of the wire for small messages, and a microsecond is 12.5 KB of wire.
        ensure!(kept.percent_of_fair >= 90.0 && kept.latency_us <= 25.0, "{kept:?}");
        ensure!(kept.percent_of_small >= 45.0, "{kept:?}");
    }
    Ok(())
}

/// A change that makes the card slower must say so here, and in the budget. The runs are deterministic, so the floors are what
/// was measured, rounded down.
#[test]
fn rates_at_512_bits_do_not_fall() -> Result<()> {
    let floors = [
        (Kind::Write, 64, 1, 95.5),
        (Kind::Send, 64, 64, 84.5),
        (Kind::Write, 4096, 1, 99.5),
        (Kind::Read, 16 << 10, 1, 99.5),
    ];
    let cases =
        floors.map(|(kind, bytes, queue_pairs, _)| Case { kind, bytes, pmtu: Pmtu::Bytes4096, queue_pairs });
    let rows =
        bench::measure(&card_model(512)?, CardOptions::standard(512), &Conditions::default(), &cases, 1)?;
    ensure!(rows.len() == floors.len(), "cases were not measured");
    for (row, (.., floor)) in rows.iter().zip(floors) {
        ensure!(
            row.percent_of_wire >= floor,
            "{} reaches {} %, not {floor} %",
            row.name,
            row.percent_of_wire
        );
    }
    Ok(())
}

/// A lost frame costs little more than what was in flight when the card learns of it: at 0.1 % loss more than 90 % of the bound of
/// go-back-N is left (design 8), and at 1 % as well.
#[test]
fn goodput_stays_near_the_bound_of_go_back_n() -> Result<()> {
    let model = card_model(64)?;
    for percent in [0.1, 1.0] {
        let point = goodput::point(
            &model,
            CardOptions::standard(64),
            Pmtu::Bytes4096,
            Against::Loss(percent),
            120,
            1,
        )?;
        ensure!(point.met > 0 && point.packets_again > 0, "nothing was lost: {point:?}");
        ensure!(point.percent_of_wire >= 0.9 * point.percent_bound, "{point:?}");
        ensure!(point.percent_of_wire < 100.0, "{point:?}");
    }
    Ok(())
}
