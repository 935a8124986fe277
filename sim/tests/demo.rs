//! Results of the demo for captures, and that equal runs give equal results.
use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rnic_hdl::config::Config;
use rnic_packet_path::path;
use rnic_sim::demo::captures::{CaptureSet, Captures, Expected};
use rnic_sim::demo::{self, DemoOptions};
use rnic_stimulus::captures::{Capture, Trace};
use rnic_stimulus::frames::{frame_of, random_packet};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use verilator_sys::{ModelOptions, Optimization};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn config(preset: &str) -> Result<Config> {
    let text = std::fs::read_to_string(root().join(format!("configs/{preset}.toml")))?;
    Ok(Config::parse(&text)?)
}

/// Sends captures through the packet path at 64 bits.
fn pass(set: &CaptureSet) -> Result<Captures> {
    let directory = tempfile::tempdir()?;
    let config = config("w64")?;
    let options = ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() };
    let model = path::build_model(&config, &options)?;
    demo::captures::pass(&config, &model, set, &directory.path().join("captures.pcap"))
}

#[test]
fn captures_of_others_are_reported_whatever_they_hold() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut payload = Vec::new();
    let good = frame_of(&random_packet(&mut random, &mut payload));
    let mut trace = Trace::create(&directory.path().join("mixed.pcap"))?;
    let mut broken = good.clone();
    *broken.last_mut().context("a frame has bytes")? ^= 1;
    let mut padded = good.clone();
    padded.resize(good.len() + 7, 0);
    let mut with_checksum = random_packet(&mut random, &mut payload);
    with_checksum.udp.checksum = 0x1234;
    // ARP, twice the good frame, the same padded by a MAC, one with a UDP checksum, and two with a wrong ICRC.
    let arp = [&[0xff; 12][..], &[0x08, 0x06], &[0; 46]].concat();
    for frame in [&arp, &good, &good, &padded, &frame_of(&with_checksum), &broken, &broken] {
        trace.write(0, frame)?;
    }
    drop(trace);
    // A capture without any RoCE in it.
    Trace::create(&directory.path().join("other.pcap"))?.write(0, &arp)?;

    let captures = pass(&CaptureSet::read(directory.path())?)?;
    ensure!((captures.each.len(), captures.frames, captures.other_frames) == (2, 6, 2), "{captures:?}");
    ensure!((captures.frames_identical, captures.frames_normalised) == (3, 1), "{captures:?}");
    ensure!(captures.drops == BTreeMap::from([("icrc".to_string(), 2)]), "{captures:?}");
    Ok(())
}

/// The project's own captures hold one corrupted frame; a set without it, or with another one, is not that set.
#[test]
fn a_set_of_captures_that_says_what_it_holds_is_held_to_it() -> Result<()> {
    let own = CaptureSet::read(&root().join("tests/vectors"))?;
    let drops = BTreeMap::from([("icrc".to_string(), 1)]);
    let expected = Expected { frames: 419, frames_identical: 418, drops };
    ensure!(own.expected == Some(expected), "{:?}", own.expected);
    let is_corrupted = |capture: &Capture| capture.name == "corrupt_write_payload_icrc";
    let mut changed = CaptureSet { captures: vec![], ..own.clone() };
    changed.captures.extend(own.captures.into_iter().filter(is_corrupted));
    let error = pass(&changed).expect_err("frames are missing").to_string();
    ensure!(error.starts_with("expected.json of the captures says"), "{error}");
    changed.expected = None;
    ensure!(pass(&changed)?.drops["icrc"] == 1, "the corrupted frame is refused");
    Ok(())
}

#[test]
fn two_runs_of_the_demo_take_the_same_cycles() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let options = DemoOptions { config: config("w512")?, seed: 3, messages: 300 };
    let captures = root().join("tests/vectors");
    let run = |name: &str| demo::run(&options, &captures, &directory.path().join(name));
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| run("second"));
        (run("first"), second.join())
    });
    let (first, second) = (first?, second.expect("the second run does not panic")?);
    ensure!(first.cards.cycles == second.cards.cycles && first.captures.cycles == second.captures.cycles);
    ensure!(first.cards.messages >= 300 && first.cards.bytes_verified == second.cards.bytes_verified);
    ensure!(
        first.captures.frames == 419 && first.captures.frames_identical == 418,
        "the captures hold 419 RoCE frames, one corrupted"
    );
    for name in ["rnic.v", "trace.pcap", "captures.pcap", "summary.json", "report.svg"] {
        let size = std::fs::metadata(directory.path().join("first").join(name))?.len();
        ensure!(size > 0, "{name} is empty");
    }
    Ok(())
}
