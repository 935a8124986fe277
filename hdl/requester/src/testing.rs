//! Stimuli that the tests of several blocks share.
use num_bigint::BigUint;
use rnic_blocks::bench::Random;
use rnic_kernel::prelude::*;
use rnic_layout::limits::WQE_SLOT_BYTES;
use rnic_layout::queue::send::{INLINE, SIGNALLED, SOLICITED, TWO_SLOTS};
use rnic_layout::state::{PathMtu, QpState, Service};
use rnic_messages::read::{READ_UNIT_BITS, ReadShare};
use rnic_messages::setup::{SetupEvent, SetupKind};

use crate::messages::SLOT_BITS;
use rand::Rng;

/// A slot in memory.
pub(crate) type Bytes = [u8; WQE_SLOT_BYTES];

/// A slot, byte 0 in bits 7:0.
pub(crate) fn slot_bits(bytes: &[u8]) -> Bits<SLOT_BITS> {
    BigUint::from_bytes_le(bytes).into()
}

/// A setup event of a reliable queue pair.
pub(crate) fn event(kind: SetupKind, queue_pair: usize, state: QpState, generation: u8) -> SetupEvent {
    let mut event = SetupEvent { kind, ..SetupEvent::default() };
    event.queue_pair = bits(queue_pair as u64);
    event.state = bits(state as u64);
    event.generation = bits(u64::from(generation));
    event.path.generation = event.generation;
    event.path.service = bits(Service::ReliableConnected as u64);
    event.path.path_mtu = bits(PathMtu::Bytes1024 as u64);
    event.read_share = ReadShare { unit: bits(4 * queue_pair as u64 % (1 << READ_UNIT_BITS)), size: bits(3) };
    event
}

/// The slot of an atomic, and one after it: mostly right, with all kinds of faults.
pub(crate) fn random_atomic(random: &mut Random) -> [Bytes; 2] {
    let mut slots = [[0; WQE_SLOT_BYTES]; 2];
    slots.iter_mut().for_each(|slot| random.fill(&mut slot[..]));
    let wqe = &mut slots[0];
    wqe[0] = random.random_range(5..7);
    wqe[1] = random.random::<u8>() & (SIGNALLED | SOLICITED);
    (wqe[2], wqe[3]) = (1, 0);
    wqe[4..8].fill(0);
    for length in [28, 44] {
        wqe[length..][..4].copy_from_slice(&8u32.to_le_bytes());
    }
    match random.random_range(0..20) {
        0 => wqe[1] |= INLINE,
        1 => wqe[1] |= TWO_SLOTS,
        2 => wqe[1] |= 1 << random.random_range(5..8),
        3 => wqe[2] = random.random_range(0..16),
        4 => wqe[4 + random.random_range(0..4)] = 1,
        5 => wqe[28 + random.random_range(0..4)] ^= 1 << random.random_range(0..8),
        6 => wqe[44 + random.random_range(0..4)] ^= 1 << random.random_range(0..8),
        _ => {}
    }
    slots
}

/// A WQE of two slots, of which the first alone counts without [`TWO_SLOTS`]: mostly right, with all kinds of
/// faults; never an atomic.
pub(crate) fn random_wqe(random: &mut Random) -> [Bytes; 2] {
    let mut wqe = [0; 2 * WQE_SLOT_BYTES];
    random.fill(&mut wqe[..]);
    wqe[0] = match random.random_range(0..20) {
        0 => [0, 1, 2, 3, 4, 7, 8, 9, 10, 15, 16][random.random_range(0..11)],
        1 => random.random_range(7..=255),
        2 => 7,
        3 => 9,
        _ => random.random_range(0..5),
    };
    let is_read = wqe[0] == 4;
    let two_slots: bool = random.random_bool(0.4);
    let inline: bool = random.random_bool(if is_read { 0.05 } else { 0.3 });
    wqe[1] = random.random::<u8>() & (SIGNALLED | SOLICITED);
    wqe[1] |= if two_slots { TWO_SLOTS } else { 0 } | if inline { INLINE } else { 0 };
    wqe[3] = 0;
    let room = if two_slots && !is_read { 6 } else { 2 };
    let count = match random.random_range(0..20) {
        0 => random.random_range(0..16),
        1 => room + 1,
        _ if inline => 0,
        _ => random.random_range(0..=room),
    };
    wqe[2] = count;
    let mut sum = 0u64;
    for index in 0..6 {
        let length: u32 = match random.random_range(0..30) {
            0 => random.random(),
            1 => u32::MAX,
            2..8 => 0,
            _ => random.random_range(1..500),
        };
        if index < count.into() {
            sum += u64::from(length);
        }
        wqe[32 + 16 * index + 12..][..4].copy_from_slice(&length.to_le_bytes());
    }
    let inline_room = if two_slots { 96 } else { 32 };
    let length = match random.random_range(0..20) {
        0 => random.random(),
        1 => (sum as u32).wrapping_add(1),
        2 => 1 << 31,
        3 => (1 << 31) + 1,
        4 => inline_room + 1,
        5 => inline_room,
        _ if inline => random.random_range(0..=inline_room),
        _ => sum as u32,
    };
    wqe[28..32].copy_from_slice(&length.to_le_bytes());
    match random.random_range(0..40) {
        0 => wqe[1] |= 1 << random.random_range(5..8),
        1 => wqe[2] |= 1 << random.random_range(4..8),
        2 => wqe[3] |= 1 << random.random_range(0..8),
        _ => {}
    }
    if wqe[0] == 7 && random.random_bool(0.7) {
        // A LOCAL_INVALIDATE has neither SGEs nor bytes.
        (wqe[1], wqe[2]) = (wqe[1] & !INLINE, 0);
        wqe[28..32].fill(0);
    }
    [wqe[..64].try_into().unwrap(), wqe[64..].try_into().unwrap()]
}
