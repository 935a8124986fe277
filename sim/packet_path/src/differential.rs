//! Differential test of the packet path: random frames through the hardware and through the software view of the contract.
//!
//! Each frame goes into the verilated packet path and into [`classify()`]; tokens, payloads and all counters must agree. Each
//! accepted packet is then sent, with its payload at a random byte position, and must come out as [`PacketRepr::emit`] writes
//! it.
use crate::path::{MacFrame, PacketPath, Received, Role, Sent, Stalls, Transmit};
use crate::token::Token;
use anyhow::{Result, bail, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rnic_layout::opcode::{self, Class};
use rnic_layout::registers::{self, COUNTERS, counter, counter_offset};
use rnic_layout::wire::{DropReason, Filter, IpRepr, PacketRepr, bth, classify};
use rnic_messages::sizes::QUEUE_PAIR_BITS;
use rnic_stimulus::frames::{self, DrawnFrame, OWN_MAC};
use std::collections::VecDeque;
use verilator_sys::Model;

/// Counts of a run without differences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Frames received.
    pub frames: u64,
    /// Packets accepted and sent.
    pub packets: u64,
    /// Frames dropped, by reason.
    pub drops: [u64; DropReason::ALL.len()],
    /// Core clock cycles.
    pub cycles: u64,
}

/// Address filter of a run.
const FILTER: Filter = Filter { own_mac: OWN_MAC, promiscuous: false, accept_multicast: true };
/// Payload of a burst, which fits the buffers of the card, so that no frame is dropped for lack of space.
const BURST_BYTES_MAX: usize = 12 * 1024;
/// Cycles within which a burst must pass, whatever the stalls.
const BURST_CYCLES_MAX: u64 = 200_000;
/// Cycles after a burst in which an unexpected packet would have arrived.
const SETTLE_CYCLES: u64 = 200;

/// Compares `frames` random frames drawn from `seed`.
///
/// # Errors
/// The first difference, with the seed, the number of the frame and its bytes.
pub fn run(model: &Model, stalls: Stalls, seed: u64, frames: u64) -> Result<Agreement> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut path = PacketPath::new(model, stalls, seed)?;
    configure(&mut path, &FILTER)?;
    let mut agreement = Agreement::default();
    let mut bytes_received = 0;
    while agreement.frames < frames {
        let burst = draw_burst(&mut random, frames - agreement.frames);
        agreement.frames += burst.len() as u64;
        bytes_received += burst.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>();
        let context =
            |error: anyhow::Error| error.context(format!("seed {seed}, up to frame {}", agreement.frames));
        let expected = expect(&burst, &mut agreement.drops);
        agreement.packets += expected.len() as u64;
        receive(&mut path, &burst, &expected).map_err(context)?;
        send_again(&mut path, &mut random, &burst).map_err(context)?;
        compare_counters(&mut path, &agreement, bytes_received).map_err(context)?;
    }
    agreement.cycles = path.cycle();
    Ok(agreement)
}

/// Writes an address filter and enables the card.
///
/// # Errors
/// If a register access fails.
pub fn configure(path: &mut PacketPath, filter: &Filter) -> Result<()> {
    let [a, b, c, d, e, f] = filter.own_mac.0;
    path.write_register(registers::REG_OWN_MAC.offset.into(), u64::from_be_bytes([0, 0, a, b, c, d, e, f]))?;
    let reset = path.read_register(registers::REG_PORT_CONTROL.offset.into())?;
    let flags = u64::from(filter.promiscuous) | u64::from(filter.accept_multicast) << 1;
    path.write_register(registers::REG_PORT_CONTROL.offset.into(), reset & !3 | flags)?;
    path.write_register(registers::REG_CONTROL.offset.into(), 1)
}

/// Reads a snapshot of all counters, in the order of [`COUNTERS`].
///
/// # Errors
/// If a register access fails, or the snapshot takes longer than the contract allows.
pub fn counters(path: &mut PacketPath) -> Result<Vec<u64>> {
    const SNAPSHOT_CYCLES_MAX: u64 = 4096;
    path.write_register(registers::REG_COUNTER_LATCH.offset.into(), 1)?;
    let deadline = path.cycle() + SNAPSHOT_CYCLES_MAX;
    while path.read_register(registers::REG_COUNTER_LATCH.offset.into())? != 0 {
        ensure!(
            path.cycle() < deadline,
            "the snapshot of the counters takes more than {SNAPSHOT_CYCLES_MAX} cycles"
        );
    }
    (0..COUNTERS.len()).map(|index| path.read_register(counter_offset(index).into())).collect()
}

fn draw_burst(random: &mut ChaCha8Rng, frames_max: u64) -> Vec<DrawnFrame> {
    let mut burst = Vec::new();
    let mut bytes = 0;
    while (burst.len() as u64) < frames_max && burst.len() < 64 {
        let frame = frames::random_frame(random);
        bytes += frame.bytes.len();
        burst.push(frame);
        if bytes > BURST_BYTES_MAX {
            break;
        }
    }
    burst
}

/// Packets that must be received, in order for each destination. Adds the drops of the burst to `drops`.
fn expect(burst: &[DrawnFrame], drops: &mut [u64]) -> VecDeque<Received> {
    let verdicts = burst.iter().map(|frame| classify(&frame.bytes, frame.mac_error, &FILTER));
    let mut expected = VecDeque::new();
    for verdict in verdicts {
        match verdict {
            Ok(packet) => expected.push_back(Received {
                role: role_of(packet.bth.opcode),
                token: token_of(&packet),
                payload: packet.payload.to_vec(),
                cycle: 0,
            }),
            Err(reason) => drops[reason.index()] += 1,
        }
    }
    expected
}

/// Destination of packets with this opcode.
///
/// # Panics
/// If the card drops this opcode.
pub fn role_of(code: u8) -> Role {
    match opcode::class(code).expect("the packet was accepted") {
        Class::Request => Role::Responder,
        Class::Response | Class::Congestion => Role::Requester,
    }
}

/// Token that the hardware must make of a packet.
pub fn token_of(packet: &PacketRepr) -> Token {
    let mut token = Token::default();
    token.set("destination_mac", mac_number(packet.ethernet.destination.0));
    token.set("source_mac", mac_number(packet.ethernet.source.0));
    token.set("vlan_present", packet.ethernet.vlan.is_some());
    token.set("vlan_control", packet.ethernet.vlan.map_or(0, |tag| tag.control()));
    match packet.ip {
        IpRepr::V4(ip) => {
            token.set("traffic_class", ip.traffic_class);
            token.set("identification", ip.identification);
            token.set("hop_limit", ip.hop_limit);
            token.set("source_address", u128::from(ip.source.to_ipv6_mapped()));
            token.set("destination_address", u128::from(ip.destination.to_ipv6_mapped()));
        }
        IpRepr::V6(ip) => {
            token.set("is_ipv6", true);
            token.set("traffic_class", ip.traffic_class);
            token.set("flow_label", ip.flow_label);
            token.set("hop_limit", ip.hop_limit);
            token.set("source_address", u128::from(ip.source));
            token.set("destination_address", u128::from(ip.destination));
        }
    }
    token.set("source_port", packet.udp.source_port);
    token.set("opcode", packet.bth.opcode);
    token.set("solicited", packet.bth.solicited);
    token.set("migrated", packet.bth.migrated);
    token.set("partition_key", packet.bth.partition_key);
    token.set("forward_congestion", packet.bth.forward_congestion);
    token.set("backward_congestion", packet.bth.backward_congestion);
    token.set("destination_qp", packet.bth.destination_qp);
    token.set("queue_pair", packet.bth.destination_qp & ((1 << QUEUE_PAIR_BITS) - 1));
    token.set("ack_request", packet.bth.ack_request);
    token.set("psn", packet.bth.psn.value());
    token.set_extended(packet.extended.padded());
    token.set("payload_bytes", packet.payload.len() as u128);
    token.set("pad_mismatch", packet.bth.pad_count != bth::pad_count(packet.payload.len()));
    token
}

fn mac_number(mac: [u8; 6]) -> u64 {
    mac.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Receives a burst, and compares the packets.
fn receive(path: &mut PacketPath, burst: &[DrawnFrame], expected: &VecDeque<Received>) -> Result<()> {
    for frame in burst {
        path.deliver(MacFrame { bytes: frame.bytes.clone(), error: frame.mac_error });
    }
    let deadline = path.cycle() + BURST_CYCLES_MAX;
    let mut received = Vec::new();
    let mut settled = 0;
    while settled < SETTLE_CYCLES {
        path.step();
        let news = path.take_received();
        let is_done =
            path.is_idle_outside() && received.len() + news.len() >= expected.len() && news.is_empty();
        settled = if is_done { settled + 1 } else { 0 };
        received.extend(news);
        if path.cycle() > deadline {
            break;
        }
    }
    for role in [Role::Responder, Role::Requester] {
        let mut found = received.iter().filter(|packet| packet.role == role);
        for (index, wanted) in expected.iter().filter(|packet| packet.role == role).enumerate() {
            let Some(found) = found.next() else {
                bail!("{role:?}: packet {index} of the burst is missing: {:?}", describe(wanted));
            };
            ensure!(
                found.token == wanted.token && found.payload == wanted.payload,
                "{role:?}: packet {index} of the burst is {}\nwanted {}",
                describe(found),
                describe(wanted)
            );
        }
        if let Some(surplus) = found.next() {
            bail!("{role:?}: a packet that should have been dropped came through: {}", describe(surplus));
        }
    }
    Ok(())
}

fn describe(packet: &Received) -> String {
    format!(
        "opcode {:#04x} psn {:#x} with {} bytes: {:?} {}",
        packet.token.get("opcode"),
        packet.token.get("psn"),
        packet.payload.len(),
        packet.token,
        hex::encode(&packet.payload)
    )
}

/// Sends each accepted packet of a burst, and compares the frames.
fn send_again(path: &mut PacketPath, random: &mut ChaCha8Rng, burst: &[DrawnFrame]) -> Result<()> {
    let mut wanted = Vec::new();
    for frame in burst {
        let Ok(packet) = classify(&frame.bytes, frame.mac_error, &FILTER) else { continue };
        let packet = packet.canonical();
        wanted.push(frames::frame_of(&packet));
        let payload_offset = random.random_range(0..path.width_bytes());
        path.transmit(Transmit {
            token: token_of(&packet),
            payload: packet.payload.to_vec(),
            payload_offset,
        });
    }
    let deadline = path.cycle() + BURST_CYCLES_MAX;
    let mut sent: Vec<Sent> = Vec::new();
    while sent.len() < wanted.len() && path.cycle() < deadline {
        path.step();
        sent.extend(path.take_sent());
    }
    ensure!(sent.len() == wanted.len(), "{} frames were sent of {}", sent.len(), wanted.len());
    for (index, (found, wanted)) in sent.iter().zip(&wanted).enumerate() {
        ensure!(
            found.bytes == *wanted,
            "frame {index} of the burst was sent as\n{}\nwanted\n{}",
            hex::encode(&found.bytes),
            hex::encode(wanted)
        );
    }
    Ok(())
}

/// Checks that each frame has incremented exactly one counter, the right one.
fn compare_counters(path: &mut PacketPath, agreement: &Agreement, bytes_received: u64) -> Result<()> {
    let found = counters(path)?;
    for reason in DropReason::ALL {
        let (found, wanted) = (found[counter(reason.name())], agreement.drops[reason.index()]);
        ensure!(found == wanted, "counter {reason} is {found}, and should be {wanted}");
    }
    let dropped: u64 = agreement.drops.iter().sum();
    let accepted: u64 = ["requests_received", "responses_received", "congestion_notifications_received"]
        .into_iter()
        .map(|name| found[counter(name)])
        .sum();
    for (name, found, wanted) in [
        ("frames_received", found[counter("frames_received")], agreement.frames),
        ("bytes_received", found[counter("bytes_received")], bytes_received),
        ("of accepted packets", accepted, agreement.frames - dropped),
        ("frames_sent", found[counter("frames_sent")], agreement.packets),
    ] {
        ensure!(found == wanted, "counter {name} is {found}, and should be {wanted}");
    }
    Ok(())
}
