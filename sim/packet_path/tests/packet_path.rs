//! The verilated packet path at all widths: random frames against the software view of the contract.
use anyhow::{Context, Result, ensure};
use rnic_hdl::config::Config;
use rnic_layout::registers::{self, COUNTERS, counter};
use rnic_layout::wire::{DropReason, Filter};
use rnic_packet_path::design::{self, TOP};
use rnic_packet_path::differential;
use rnic_packet_path::path::{MacFrame, PacketPath, Stalls, Transmit};
use rnic_stimulus::chance::{number, seed};
use rnic_stimulus::frames::{OWN_MAC, frame_of, random_packet};
use std::path::{Path, PathBuf};
use verilator_sys::{Model, ModelOptions, Optimization};

/// Random frames in one run of the tests, over all widths and ways to stall, unless `RNIC_FRAMES` gives another number. The bar
/// for a release is twenty times as many at each width, with `scripts/soak.sh` or `rnic-sim differential`.
const FRAMES: u64 = 5_000;
const WIDTHS: u64 = 4;

/// The project. Cargo and `scripts/soak.sh` say where the package is; the soak also runs on machines without this checkout.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).join("../..")
}

fn config(preset: &str) -> Result<Config> {
    let text = std::fs::read_to_string(root().join(format!("configs/{preset}.toml")))?;
    Ok(Config::parse(&text)?)
}

fn options() -> ModelOptions {
    ModelOptions { optimization: Optimization::O1, ..ModelOptions::default() }
}

fn model(preset: &str) -> Result<Model> {
    let verilog = design::generate(&config(preset)?)?.verilog();
    Ok(Model::build(TOP, &verilog, &options())?)
}

/// Runs a width's share of the frames, all four ways to stall, and makes sure that it met good and bad ones.
fn random_frames_agree(preset: &str) -> Result<()> {
    let model = model(preset)?;
    let frames = number("RNIC_FRAMES", FRAMES);
    let first_seed = seed(0) * 4 + 1;
    let mut drops = [0; DropReason::ALL.len()];
    let mut packets = 0;
    for (seed, stalls) in (first_seed..).zip(Stalls::FOUR_WAYS) {
        let agreement = differential::run(&model, stalls, seed, frames.div_ceil(WIDTHS * 4))?;
        packets += agreement.packets;
        for (sum, count) in drops.iter_mut().zip(agreement.drops) {
            *sum += count;
        }
    }
    let reasons = drops.iter().filter(|count| **count > 0).count();
    ensure!(
        packets > frames / WIDTHS / 2 && reasons > 12,
        "{packets} packets and {reasons} reasons say little"
    );
    Ok(())
}

#[test]
fn random_frames_agree_at_64_bits() -> Result<()> {
    random_frames_agree("w64")
}

#[test]
fn random_frames_agree_at_128_bits() -> Result<()> {
    random_frames_agree("w128")
}

#[test]
fn random_frames_agree_at_256_bits() -> Result<()> {
    random_frames_agree("w256")
}

#[test]
fn random_frames_agree_at_512_bits() -> Result<()> {
    random_frames_agree("w512")
}

/// Were the comparison blind, these faults in the Verilog would pass it.
#[test]
fn planted_faults_are_noticed() -> Result<()> {
    let verilog = design::generate(&config("w64")?)?.verilog();
    let faults = [
        ("frames that the MAC marks are taken", "wire error = tlast && tuser;", "wire error = 1'b0;"),
        ("one bit of the ICRC is always zero", "assign y[10] = ^(x &", "assign y[10] = &(x &"),
        ("another UDP port is RoCE's", "ROCE_PORT             = 16'h12b7", "ROCE_PORT = 16'h12b6"),
        ("fragments may be made of what is sent", "16'h4000}", "16'h0000}"),
    ];
    for (fault, from, to) in faults {
        ensure!(verilog.contains(from), "the Verilog has no `{from}` any more; plant `{fault}` elsewhere");
        let broken = verilog.replacen(from, to, 1);
        let model = Model::build(TOP, &broken, &options()).context(fault)?;
        let difference = differential::run(&model, Stalls::default(), 1, 400);
        ensure!(difference.is_err(), "{fault}: nobody noticed");
    }
    Ok(())
}

/// The shortest frames, back to back: 58 bytes without payload.
#[test]
fn frames_of_one_beat_pass_without_a_bubble() -> Result<()> {
    const COUNT: u64 = 400;
    let mut path = PacketPath::new(&model("w512")?, Stalls::default(), 1)?;
    differential::configure(&mut path, &Filter::PROMISCUOUS)?;
    let mut random = seeded();
    let mut payload = Vec::new();
    let mut tokens = Vec::new();
    while (tokens.len() as u64) < COUNT {
        let mut packet = random_packet(&mut random, &mut payload);
        packet.payload = &[];
        let packet = packet.canonical();
        if packet.buffer_len() <= 64 {
            path.deliver(MacFrame { bytes: frame_of(&packet), error: false });
            tokens.push(differential::token_of(&packet));
        }
    }
    let start = path.cycle();
    let mut received = Vec::new();
    while received.len() < tokens.len() {
        ensure!(path.cycle() < start + 2 * COUNT, "{} of {COUNT} packets in time", received.len());
        path.step();
        received.extend(path.take_received());
    }
    // Two buffers of one token a cycle each; the last packet comes a latency after its frame.
    let latency = path.cycle() - start - COUNT;
    ensure!(latency < 40, "{COUNT} frames took {latency} cycles more than there are beats");

    for token in tokens {
        path.transmit(Transmit { token, payload: Vec::new(), payload_offset: 0 });
    }
    let mut sent = Vec::new();
    while (sent.len() as u64) < COUNT {
        ensure!(path.cycle() < start + 5 * COUNT, "{} of {COUNT} frames in time", sent.len());
        path.step();
        sent.extend(path.take_sent());
    }
    let bubbles = sent.windows(2).filter(|pair| pair[1].cycles.0 != pair[0].cycles.1 + 1).count();
    ensure!(bubbles == 0, "{bubbles} bubbles between {COUNT} frames of one beat");
    Ok(())
}

fn seeded() -> rand_chacha::ChaCha8Rng {
    rand::SeedableRng::seed_from_u64(7)
}

/// A frame that finds no room is dropped whole and counted, and the next one that finds room passes.
#[test]
fn a_full_buffer_drops_whole_frames_and_recovers() -> Result<()> {
    let model = model("w64")?;
    let mut path = PacketPath::new(&model, Stalls { source: 0.0, sink: 1.0 }, 1)?;
    differential::configure(
        &mut path,
        &Filter { own_mac: OWN_MAC, promiscuous: false, accept_multicast: false },
    )?;
    let mut random = seeded();
    let mut payload = Vec::new();
    let mut requests = Vec::new();
    while requests.len() < 40 {
        let packet = random_packet(&mut random, &mut payload);
        // SEND_ONLY with 2 KiB: 40 of them are more than the buffer of 32 KiB.
        if packet.bth.opcode == 0x04 && packet.payload.len() >= 2048 {
            path.deliver(MacFrame { bytes: frame_of(&packet), error: false });
            requests.push((differential::token_of(&packet), packet.payload.to_vec()));
        }
    }
    while !path.is_idle_outside() {
        path.step();
    }
    for _ in 0..200 {
        path.step();
    }
    let full = differential::counters(&mut path)?;
    let dropped = full[counter("buffer_full")];
    ensure!(dropped > 0, "40 packets of 2 KiB and more cannot fit 32 KiB");
    ensure!(full[counter("requests_received")] + dropped == 40, "every frame is counted once");

    path.set_stalls(Stalls::default());
    for _ in 0..20_000 {
        path.step();
    }
    let received = path.take_received();
    ensure!(received.len() as u64 == 40 - dropped, "what was accepted comes out");
    let mut sent = requests.iter();
    for packet in &received {
        let is_next = |request: &&(rnic_packet_path::token::Token, Vec<u8>)| {
            request.0 == packet.token && request.1 == packet.payload
        };
        ensure!(sent.any(|request| is_next(&request)), "packets come out whole and in order");
    }
    let packet = random_packet(&mut random, &mut payload);
    path.deliver(MacFrame { bytes: frame_of(&packet), error: false });
    for _ in 0..2_000 {
        path.step();
    }
    ensure!(path.take_received().len() == 1, "the next good frame passes");
    Ok(())
}

#[test]
fn a_closed_card_takes_nothing_and_a_reset_closes_it() -> Result<()> {
    let mut path = PacketPath::new(&model("w64")?, Stalls::default(), 1)?;
    let read =
        |path: &mut PacketPath, register: &registers::Register| path.read_register(register.offset.into());
    ensure!(read(&mut path, &registers::REG_MAGIC)? == registers::MAGIC, "the magic comes first");
    ensure!(read(&mut path, &registers::REG_FEATURES)? == 1, "the card has a packet path and nothing else");
    ensure!(read(&mut path, &registers::REG_GEOMETRY)? == 64 | 250_000 << 32, "width and clock");
    ensure!(path.read_register(0x3ff8)? == 0, "where no register stands, reads give zero");

    let mut random = seeded();
    let mut payload = Vec::new();
    let mut deliver = |path: &mut PacketPath| {
        let packet = random_packet(&mut random, &mut payload);
        path.deliver(MacFrame { bytes: frame_of(&packet), error: false });
        for _ in 0..1_000 {
            path.step();
        }
        path.take_received().len()
    };
    path.write_register(registers::REG_PORT_CONTROL.offset.into(), 1)?;
    ensure!(deliver(&mut path) == 0, "a closed card takes nothing");
    ensure!(differential::counters(&mut path)?[counter("buffer_full")] == 1, "and counts it");
    path.write_register(registers::REG_CONTROL.offset.into(), 1)?;
    ensure!(deliver(&mut path) == 1, "an open one does");

    // By two halves, low then high: nothing happens before the second.
    path.write_register(registers::REG_SCRATCH.offset.into(), 0x1234)?;
    path.write_register_bytes(registers::REG_CONTROL.offset.into(), 3, 0x0f)?;
    ensure!(read(&mut path, &registers::REG_SCRATCH)? == 0x1234, "the low half does not act");
    path.write_register_bytes(registers::REG_CONTROL.offset.into(), 0, 0xf0)?;
    ensure!(read(&mut path, &registers::REG_STATUS)? == 0b010, "the reset is under way");
    for _ in 0..300 {
        path.step();
    }
    ensure!(read(&mut path, &registers::REG_STATUS)? == 0b101, "the reset is over");
    ensure!(
        read(&mut path, &registers::REG_CONTROL)? == 0 && read(&mut path, &registers::REG_SCRATCH)? == 0,
        "registers are cleared"
    );
    let port_control = read(&mut path, &registers::REG_PORT_CONTROL)?;
    ensure!(port_control == 4224 << 16 | 5 << 4, "port_control is {port_control:#x} after a reset");
    ensure!(COUNTERS.len() < 0x3000 / 8, "counters fit the BAR");
    Ok(())
}
