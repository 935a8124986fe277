//! The wire formats compared with frames made by others: see `tests/vectors/README.md`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;
use rnic_layout::opcode;
use rnic_layout::wire::{DropReason, Filter, IpRepr, PacketRepr, classify, icrc};
use serde_json::Value;

/// RoCEv2 frames in all captures together, as tshark counts them (`udp.port == 4791`).
const ROCE_FRAMES: usize = 419;

/// All other frames in the captures, again counted by tshark: TCP, and ICMPv6 with and without hop-by-hop
/// options.
const OTHER_FRAMES: usize = 459;

/// Frames that Linux sent over one wire, in order.
struct Capture {
    name: String,
    frames: Vec<Vec<u8>>,
}

fn vectors_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

/// Reads all captures, sorted by name.
fn captures() -> Vec<Capture> {
    let entries = fs::read_dir(vectors_dir()).expect("the folder of vectors is part of the repository");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
            let mut frames = Vec::new();
            while let Some(packet) = reader.next_packet() {
                frames.push(packet.unwrap().data.into_owned());
            }
            Capture { name: path.file_stem().unwrap().to_string_lossy().into_owned(), frames }
        })
        .collect()
}

/// One vector of `vectors.json`.
struct Vector {
    tag: String,
    frame: Vec<u8>,
    crc_input: Vec<u8>,
    icrc: Vec<u8>,
}

fn vectors() -> Vec<Vector> {
    let text = fs::read_to_string(vectors_dir().join("vectors.json")).unwrap();
    let entries: Vec<Value> = serde_json::from_str(&text).unwrap();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let bytes = |entry: &Value, key: &str| hex::decode(entry[key].as_str().unwrap()).unwrap();
    entries
        .iter()
        .map(|entry| Vector {
            tag: text(entry, "tag"),
            frame: bytes(entry, "frame"),
            crc_input: bytes(entry, "crc_in"),
            icrc: bytes(entry, "icrc_wire"),
        })
        .collect()
}

fn emit(repr: &PacketRepr<'_>) -> Vec<u8> {
    let mut frame = vec![0xA5; repr.buffer_len()];
    assert_eq!(repr.emit(&mut frame), Ok(repr.buffer_len()));
    frame
}

#[test]
fn all_23_vectors_parse_and_come_out_as_they_went_in() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 23);
    for Vector { tag, frame, .. } in &vectors {
        let repr =
            classify(frame, false, &Filter::PROMISCUOUS).unwrap_or_else(|reason| panic!("{tag}: {reason}"));
        assert_eq!(hex::encode(emit(&repr)), hex::encode(frame), "{tag}");
        assert_eq!(PacketRepr::parse(frame), Ok(repr), "{tag}");
    }
}

#[test]
fn the_icrc_of_every_vector_agrees_step_by_step() {
    for Vector { tag, frame, crc_input, icrc } in vectors() {
        let ethernet_bytes = PacketRepr::parse(&frame).unwrap().ethernet.buffer_len();
        let (packet, check) = frame[ethernet_bytes..].split_last_chunk::<4>().unwrap();
        let ones = std::iter::repeat_n(0xFF, 8);
        let input: Vec<u8> = ones.chain(icrc::masked(packet)).collect();
        assert_eq!(hex::encode(&input), hex::encode(crc_input), "{tag}");
        assert_eq!(check[..], icrc, "{tag}");
        assert_eq!((!icrc::update(icrc::INITIAL, &input)).to_le_bytes(), *check, "{tag}");
        assert_eq!(icrc::update(icrc::update(icrc::INITIAL, &input), check), icrc::RESIDUE, "{tag}");
        assert_eq!(icrc::compute(packet), *check, "{tag}");
        assert!(icrc::agrees(&frame[ethernet_bytes..]), "{tag}");
    }
}

#[test]
fn every_bit_flip_in_a_vector_is_refused_or_masked() {
    for Vector { tag, frame, .. } in vectors() {
        let repr = PacketRepr::parse(&frame).unwrap();
        let start = repr.ethernet.buffer_len();
        let mask = match repr.ip {
            IpRepr::V4(_) => icrc::IPV4_MASK,
            IpRepr::V6(_) => icrc::IPV6_MASK,
        };
        for bit in start * 8..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            let masked = mask.get(bit / 8 - start).is_some_and(|mask| mask & (0x80 >> (bit % 8)) != 0);
            match classify(&flipped, false, &Filter::PROMISCUOUS) {
                Ok(_) => assert!(masked, "{tag}: bit {bit} is covered, and its flip was accepted"),
                Err(DropReason::IpChecksum) => assert!(matches!(repr.ip, IpRepr::V4(_)), "{tag}: bit {bit}"),
                Err(reason) => assert!(!masked, "{tag}: bit {bit} is masked, and its flip is {reason}"),
            }
        }
    }
}

#[test]
fn every_captured_frame_comes_out_as_it_went_in_except_the_corrupted_one() {
    let mut refused = Vec::new();
    let mut count = 0;
    for Capture { name, frames } in captures() {
        for (index, frame) in frames.iter().enumerate() {
            let Ok(repr) = PacketRepr::parse(frame) else { continue };
            count += 1;
            match classify(frame, false, &Filter::PROMISCUOUS) {
                Ok(classified) => {
                    assert_eq!(classified, repr, "{name} frame {index}");
                    assert_eq!(hex::encode(emit(&repr)), hex::encode(frame), "{name} frame {index}");
                }
                Err(reason) => refused.push((name.clone(), reason)),
            }
        }
    }
    assert_eq!(count, ROCE_FRAMES);
    assert_eq!(refused, [("corrupt_write_payload_icrc".to_owned(), DropReason::Icrc)]);
}

#[test]
fn frames_of_linux_are_already_canonical() {
    for Capture { name, frames } in captures() {
        for (index, frame) in frames.iter().enumerate() {
            if let Ok(repr) = PacketRepr::parse(frame) {
                assert_eq!(repr.canonical(), repr, "{name} frame {index}");
            }
        }
    }
}

#[test]
fn captured_frames_of_other_protocols_are_refused_by_reason() {
    let mut counts = BTreeMap::new();
    for Capture { frames, .. } in captures() {
        for frame in &frames {
            if let Err(reason) = classify(frame, false, &Filter::PROMISCUOUS) {
                *counts.entry(reason).or_insert(0) += 1;
            }
        }
    }
    counts.remove(&DropReason::Icrc);
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(DropReason::OtherProtocol, OTHER_FRAMES)]);
}

#[test]
fn captures_hold_twenty_opcodes_with_payloads_that_obey_the_table() {
    const PMTU_BYTES: usize = 1024;
    let mut seen = [0; 256];
    for Capture { name, frames } in captures() {
        for frame in &frames {
            let Ok(repr) = PacketRepr::parse(frame) else { continue };
            let row = opcode::lookup(repr.bth.opcode).unwrap();
            assert!(
                row.payload.admits(repr.payload.len(), PMTU_BYTES),
                "{name}: {} {}",
                row.name,
                repr.payload.len()
            );
            seen[usize::from(row.code)] += 1;
        }
    }
    let names: Vec<_> =
        opcode::OPCODES.iter().filter(|row| seen[usize::from(row.code)] > 0).map(|row| row.name).collect();
    assert_eq!(
        names,
        [
            "RC_SEND_FIRST",
            "RC_SEND_MIDDLE",
            "RC_SEND_LAST",
            "RC_SEND_ONLY",
            "RC_WRITE_FIRST",
            "RC_WRITE_MIDDLE",
            "RC_WRITE_LAST",
            "RC_WRITE_ONLY_IMM",
            "RC_READ_REQUEST",
            "RC_READ_RESPONSE_FIRST",
            "RC_READ_RESPONSE_MIDDLE",
            "RC_READ_RESPONSE_LAST",
            "RC_ACKNOWLEDGE",
            "RC_ATOMIC_ACKNOWLEDGE",
            "RC_COMPARE_SWAP",
            "RC_FETCH_ADD",
            "UC_SEND_FIRST",
            "UC_SEND_MIDDLE",
            "UC_SEND_LAST",
            "UD_SEND_ONLY",
        ]
    );
}
