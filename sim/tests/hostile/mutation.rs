//! Mutations of a valid frame, and what the table of protocol 8.3 requires of each.
//!
//! Every field of every header that the frame has is mutated, with a right ICRC or a wrong one; and lengths, pads, truncation and
//! bits anywhere. Where the table does not tell the outcome by the field alone, as for a PSN or a virtual address, the reference
//! endpoint does.
use crate::traffic::PMTU_BYTES;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rnic_layout::limits::FRAME_BYTES_MAX;
use rnic_layout::opcode::{ExtendedHeader, lookup};
use rnic_layout::wire::{Field, Header, Ipv4Packet, bth, ethernet, extended, icrc, ip, udp};

/// What a mutation must lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Required {
    /// What the frame leads to without it: the card ignores the field.
    Ignored,
    /// The frame is dropped, and counted under one of these names.
    Dropped(&'static [&'static str]),
    /// What the reference says.
    Reference,
}

/// A frame that was mutated, or not.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub(crate) bytes: Vec<u8>,
    /// The FCS is wrong.
    pub(crate) is_damaged: bool,
    /// What was changed.
    pub(crate) name: String,
    pub(crate) required: Required,
    /// It is shorter than any MAC sends it.
    pub(crate) is_runt: bool,
}

/// Counters of frames that the card drops for what is before the ICRC check.
const BEFORE_ICRC: [&str; 12] = [
    "mac_error",
    "too_long",
    "destination_mac",
    "source_mac",
    "other_ethertype",
    "ip_header",
    "ip_length",
    "ip_checksum",
    "ip_fragment",
    "other_protocol",
    "other_port",
    "udp_length",
];

/// Shortest frame that a MAC sends, without FCS.
const FRAME_BYTES_MIN: usize = 60;

/// Counters of frames whose end is missing.
const SHORT: [&str; 12] = [
    "short_ethernet",
    "destination_mac",
    "other_ethertype",
    "ip_header",
    "ip_length",
    "ip_checksum",
    "ip_fragment",
    "other_protocol",
    "udp_header",
    "other_port",
    "udp_length",
    "icrc",
];

/// Headers of a valid frame, each with its offset.
fn headers(frame: &[u8]) -> Vec<(usize, Header)> {
    let mut headers = vec![(0, ethernet::fields::HEADER)];
    let mut place = ethernet::fields::BYTES;
    let mut push = |header: Header| {
        headers.push((place, header));
        place += header.bytes;
        place
    };
    let mut ip_place = ethernet::fields::BYTES;
    if frame[12..14] == ethernet::ETHERTYPE_VLAN.to_be_bytes() {
        ip_place = push(ethernet::vlan::HEADER);
    }
    push(if frame[ip_place] >> 4 == 4 { ip::ipv4::HEADER } else { ip::ipv6::HEADER });
    let bth_place = push(udp::fields::HEADER);
    push(bth::fields::HEADER);
    for kind in lookup(frame[bth_place]).map_or(&[][..], |row| row.extended) {
        push(match kind {
            ExtendedHeader::Deth => extended::deth::HEADER,
            ExtendedHeader::Feth => extended::feth::HEADER,
            ExtendedHeader::Reth => extended::reth::HEADER,
            ExtendedHeader::AtomicEth => extended::atomic_eth::HEADER,
            ExtendedHeader::Aeth => extended::aeth::HEADER,
            ExtendedHeader::AtomicAckEth => extended::atomic_ack_eth::HEADER,
            ExtendedHeader::ImmDt => extended::immediate::HEADER,
            ExtendedHeader::Ieth => extended::ieth::HEADER,
            ExtendedHeader::CnpReserved => extended::cnp::HEADER,
        });
    }
    headers
}

/// Offset of a header in a valid frame.
fn place_of(frame: &[u8], name: &str) -> Option<usize> {
    headers(frame).into_iter().find(|(_, header)| header.name == name).map(|(place, _)| place)
}

/// Offset of the IP header, and whether it is that of IPv4.
fn ip_place(frame: &[u8]) -> (usize, bool) {
    match place_of(frame, "IPv4") {
        Some(place) => (place, true),
        None => (place_of(frame, "IPv6").expect("a valid frame has an IP header"), false),
    }
}

/// Corrects the IPv4 checksum and the ICRC, which is the end of the frame.
fn seal(frame: &mut [u8], (ip, is_ipv4): (usize, bool), with_icrc: bool) {
    if is_ipv4 {
        Ipv4Packet::new_unchecked(&mut frame[ip..]).fill_checksum();
    }
    if with_icrc && let Some((covered, check)) = frame[ip..].split_last_chunk_mut::<{ icrc::BYTES }>() {
        *check = icrc::compute(covered);
    }
}

/// What a new value of a field leads to if the ICRC is right (protocol 8.3).
fn required(header: &str, field: &str, old: u128, new: u128) -> Required {
    use Required::{Dropped, Ignored, Reference};
    match (header, field) {
        ("Ethernet", "destination") => Dropped(&["destination_mac"]),
        ("Ethernet", "source") if new >> 40 & 1 == 1 => Dropped(&["source_mac"]),
        ("Ethernet", "source") => Ignored,
        ("Ethernet" | "802.1Q", "ethertype") => match new as u16 {
            ethernet::ETHERTYPE_IPV4 | ethernet::ETHERTYPE_IPV6 | ethernet::ETHERTYPE_VLAN => Reference,
            _ => Dropped(&["other_ethertype"]),
        },
        ("802.1Q", _) => Ignored,
        ("IPv4" | "IPv6", "version") | ("IPv4", "header_words") => Dropped(&["ip_header"]),
        ("IPv4", "total_length") | ("IPv6", "payload_length") => {
            Dropped(&["ip_length", "ip_header", "udp_header", "udp_length"])
        }
        ("IPv4", "more_fragments" | "fragment_offset") => Dropped(&["ip_fragment"]),
        ("IPv4", "protocol") | ("IPv6", "next_header") => Dropped(&["other_protocol"]),
        // Both are zero in ones' complement.
        ("IPv4", "checksum") if old.min(new) == 0 && old.max(new) == 0xffff => Reference,
        ("IPv4", "checksum") => Dropped(&["ip_checksum"]),
        ("IPv4" | "IPv6", "source" | "destination") => Dropped(&["source_address"]),
        ("IPv4" | "IPv6", _) => Ignored,
        ("UDP", "destination_port") => Dropped(&["other_port"]),
        ("UDP", "length") => Dropped(&["udp_length"]),
        ("UDP", _) => Ignored,
        ("BTH", "version") => Dropped(&["bth_version"]),
        ("BTH", "partition_key") if (old ^ new) & 0x7fff == 0 => Ignored,
        ("BTH", "partition_key") => Dropped(&["partition_key"]),
        ("BTH", "destination_qp") if new == 0 => Dropped(&["destination_qp"]),
        (
            "BTH",
            "solicited"
            | "migrated"
            | "forward_congestion"
            | "backward_congestion"
            | "reserved6"
            | "reserved7",
        ) => Ignored,
        ("ImmDt" | "AtomicAckETH", _) | ("AETH", "msn") | ("AtomicETH", "swap_add" | "compare") => Ignored,
        _ => Reference,
    }
}

/// Fields that the ICRC does not cover (protocol 1.8).
fn is_masked(header: &str, field: &str) -> bool {
    matches!(
        (header, field),
        ("Ethernet" | "802.1Q", _)
            | ("IPv4" | "IPv6", "traffic_class" | "hop_limit" | "flow_label" | "checksum")
            | ("UDP", "checksum")
            | ("BTH", "forward_congestion" | "backward_congestion" | "reserved6")
    )
}

/// The same if the ICRC is that of the frame before the mutation.
fn required_unsealed(header: &str, field: &str, sealed: Required) -> Required {
    match sealed {
        Required::Dropped(names) if BEFORE_ICRC.contains(&names[0]) => sealed,
        _ if is_masked(header, field) => sealed,
        _ => Required::Dropped(&["icrc"]),
    }
}

/// Draws a value other than `old`: one bit flipped, a neighbour, an extreme one, or any.
fn other_value(random: &mut ChaCha8Rng, field: &Field, old: u128) -> u128 {
    let ones = u128::MAX >> (128 - field.width);
    let new = match random.random_range(0..8) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => 0,
        3 => ones,
        4 => random.random(),
        _ => old ^ 1 << random.random_range(0..field.width),
    } & ones;
    if new == old { old ^ 1 } else { new }
}

/// Mutates one field. `kept` are QPNs that the frame must not be sent to.
fn field(random: &mut ChaCha8Rng, mut frame: Vec<u8>, kept: &[u32]) -> Mutant {
    let ip = ip_place(&frame);
    let headers = headers(&frame);
    let (place, header) = headers.choose(random).expect("a frame has headers");
    let field = header.fields.choose(random).expect("a header has fields");
    let old = field.get(&frame[*place..]);
    let mut new = other_value(random, field, old);
    if (header.name, field.name) == ("BTH", "destination_qp") && kept.contains(&(new as u32)) {
        new = 0;
    }
    field.set(&mut frame[*place..], new);
    let sealed = required(header.name, field.name, old, new);
    let is_sealed = random.random_bool(0.75);
    if (header.name, field.name) == ("IPv4", "checksum") {
        // It stays wrong; the ICRC does not cover it.
    } else {
        seal(&mut frame, ip, is_sealed);
    }
    let required = if is_sealed { sealed } else { required_unsealed(header.name, field.name, sealed) };
    let suffix = if is_sealed { "" } else { ", ICRC of before" };
    let name = format!("{} {} {old:#x} -> {new:#x}{suffix}", header.name, field.name);
    Mutant { bytes: frame, is_damaged: false, name, required, is_runt: false }
}

/// Lets the lengths of IP and UDP follow a change of the frame's length, and seals the frame.
fn adapt(frame: &mut [u8], before: usize, ip: (usize, bool)) {
    let by = (frame.len() as i64 - before as i64) as i16;
    let udp = ip.0 + if ip.1 { ip::ipv4::BYTES } else { ip::ipv6::BYTES };
    let places = [ip.0 + if ip.1 { 2 } else { 4 }, udp + 4];
    for place in places {
        let length = u16::from_be_bytes([frame[place], frame[place + 1]]).wrapping_add_signed(by);
        frame[place..place + 2].copy_from_slice(&length.to_be_bytes());
    }
    seal(frame, ip, true);
}

/// Changes the shape of a frame: its end, its length, its pad, its FCS, or bits anywhere.
fn shape(random: &mut ChaCha8Rng, mut frame: Vec<u8>) -> Mutant {
    use Required::{Dropped, Ignored, Reference};
    let ip = ip_place(&frame);
    let bth = place_of(&frame, "BTH").expect("a valid frame has a BTH");
    let (length, before) = (frame.len(), frame.clone());
    let body_bytes = length - bth - bth::fields::BYTES - icrc::BYTES;
    let pad = usize::from(frame[bth + 1] >> 4 & 3);
    let mut is_damaged = false;
    let (name, required) = match random.random_range(0..14) {
        0 => {
            let bits: u32 = 1 << random.random_range(0..32) | random.random::<u32>() & random.random::<u32>();
            for (byte, by) in frame[length - icrc::BYTES..].iter_mut().zip(bits.to_le_bytes()) {
                *byte ^= by;
            }
            (format!("ICRC ^ {bits:#x}"), Dropped(&["icrc"]))
        }
        1 => {
            let bit = random.random_range(0..8 * length);
            frame[bit / 8] ^= 1 << (bit % 8);
            (format!("bit {bit}"), Reference)
        }
        2 => {
            let most = if random.random() { 40 } else { length - 1 };
            let left = random.random_range(1..=most);
            frame.truncate(left);
            // As the MAC of the sender pads it.
            frame.resize(left.max(FRAME_BYTES_MIN), 0);
            let is_same = before[left..].iter().all(|byte| *byte == 0);
            let is_same = is_same && length <= FRAME_BYTES_MIN;
            (format!("truncated to {left}"), if is_same { Ignored } else { Dropped(&SHORT) })
        }
        3 => {
            let bytes = random.random_range(1..=64);
            frame.resize(length + bytes, random.random());
            (format!("{bytes} bytes after the ICRC"), Ignored)
        }
        4 => {
            is_damaged = true;
            ("FCS".into(), Dropped(&["mac_error"]))
        }
        5 => {
            let bytes = FRAME_BYTES_MAX + random.random_range(1..600);
            frame.resize(bytes, 0);
            (format!("{bytes} bytes"), Dropped(&["too_long"]))
        }
        6 if pad > 0 => {
            let value = random.random_range(1..=255);
            frame[length - icrc::BYTES - pad..length - icrc::BYTES].fill(value);
            seal(&mut frame, ip, true);
            (format!("pad bytes of {value:#x}"), Ignored)
        }
        7 => {
            let count = random.random_range(0..4_u8);
            frame[bth + 1] = frame[bth + 1] & !0x30 | count << 4;
            frame.truncate(length - icrc::BYTES - pad);
            frame.resize(length - pad + usize::from(count), 0);
            adapt(&mut frame, length, ip);
            (format!("pad of {count} for {pad}"), Reference)
        }
        8 if body_bytes > 0 => {
            let bytes = random.random_range(1..=body_bytes);
            frame.truncate(length - bytes);
            adapt(&mut frame, length, ip);
            (format!("{bytes} bytes less"), Reference)
        }
        9 => {
            let bytes = *[1, 2, 3, 4, 8, 64, 256].choose(random).expect("there are some");
            frame.resize(length + bytes, 0x5a);
            adapt(&mut frame, length, ip);
            (format!("{bytes} bytes more"), Reference)
        }
        10 | 11 => {
            // With the pad that it needs, and now and then with the DMA length: around the path MTU, or one byte off.
            let (last, header) = *headers(&frame).last().expect("a frame has headers");
            let start = last + header.bytes;
            let before = length - icrc::BYTES - pad - start;
            let near = [0, before.saturating_sub(1), before + 1];
            let bytes = *[near, [PMTU_BYTES - 1, PMTU_BYTES, PMTU_BYTES + 1]]
                .as_flattened()
                .choose(random)
                .expect("six");
            let count = bth::pad_count(bytes);
            frame.resize(start, 0);
            frame.resize(start + bytes + usize::from(count) + icrc::BYTES, 0xa7);
            frame[start + bytes..].fill(0);
            frame[bth + 1] = frame[bth + 1] & !0x30 | count << 4;
            if let Some(reth) = place_of(&frame, "RETH").filter(|_| random.random()) {
                extended::reth::DMA_LENGTH.set(&mut frame[reth..], bytes as u128);
            }
            adapt(&mut frame, length, ip);
            (format!("payload of {bytes} for {before}"), Reference)
        }
        12 => {
            // A runt, which no MAC has padded.
            frame.truncate(random.random_range(1..length.min(FRAME_BYTES_MIN)));
            let name = format!("a runt of {} bytes", frame.len());
            return Mutant { bytes: frame, is_damaged, name, required: Dropped(&SHORT), is_runt: true };
        }
        _ => {
            // The payload, of which the card knows nothing, or the last header.
            let place = random.random_range(bth + bth::fields::BYTES..=length - icrc::BYTES - pad.min(1));
            let place = place.min(length - icrc::BYTES - 1);
            frame[place] ^= random.random_range(1..=255_u8);
            seal(&mut frame, ip, true);
            (format!("byte {place}"), Reference)
        }
    };
    Mutant { bytes: frame, is_damaged, name, required, is_runt: false }
}

/// Draws what becomes of a valid frame: a third stays as it is.
pub(crate) fn mutate(random: &mut ChaCha8Rng, frame: &[u8], kept: &[u32]) -> Mutant {
    let intact = || Mutant {
        bytes: frame.to_vec(),
        is_damaged: false,
        name: "intact".into(),
        required: Required::Ignored,
        is_runt: false,
    };
    let mut mutant = match random.random_range(0..100) {
        0..33 => intact(),
        33..72 => field(random, frame.to_vec(), kept),
        _ => shape(random, frame.to_vec()),
    };
    // As the MAC of the sender pads it: a length of IP beyond the packet may be within the frame.
    if !mutant.is_runt {
        mutant.bytes.resize(mutant.bytes.len().max(FRAME_BYTES_MIN), 0);
    }
    mutant
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{IPV4, IPV6, path_to_card};
    use rand::SeedableRng;
    use rnic_endpoint::packet::Packet;
    use rnic_layout::psn::Psn;
    use rnic_layout::wire::extended::RethRepr;
    use rnic_layout::wire::{BthRepr, ExtendedRepr, Filter, classify};
    use std::collections::BTreeSet;

    fn write(version: usize) -> Vec<u8> {
        let reth = RethRepr { virtual_address: 0x1000, remote_key: 0x77, dma_length: 13 };
        let bth = BthRepr::new(0x0a, 5, Psn::ZERO);
        Packet::new(bth, vec![ExtendedRepr::Reth(reth)], vec![7; 13]).frame(&path_to_card(version), 1)
    }

    /// What the checks of the card that need no queue pair say agrees with the table.
    #[test]
    fn the_table_agrees_with_the_checks_of_a_frame() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let later = ["source_address", "partition_key"];
        let filter =
            Filter { own_mac: path_to_card(IPV4).remote_mac, promiscuous: false, accept_multicast: false };
        for version in [IPV4, IPV6] {
            let base = write(version);
            for _ in 0..20_000 {
                let mutant = mutate(&mut random, &base, &[]);
                let found = classify(&mutant.bytes, mutant.is_damaged, &filter).map(drop);
                let is_right = match mutant.required {
                    Required::Ignored => found.is_ok(),
                    Required::Dropped(names) if later.contains(&names[0]) => found.is_ok(),
                    Required::Dropped(names) => found.is_err_and(|reason| names.contains(&reason.name())),
                    Required::Reference => true,
                };
                assert!(is_right, "{mutant:?}: {found:?}");
            }
        }
    }

    #[test]
    fn every_field_of_a_frame_is_mutated() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let base = write(IPV6);
        let fields = headers(&base).into_iter().flat_map(|(_, header)| {
            header.fields.iter().map(move |field| format!("{} {}", header.name, field.name))
        });
        let named = |name: String| name.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let drawn: BTreeSet<String> =
            (0..5_000).map(|_| named(mutate(&mut random, &base, &[]).name)).collect();
        let missing: Vec<String> = fields.filter(|field| !drawn.contains(field)).collect();
        assert_eq!(missing, Vec::<String>::new());
    }
}
