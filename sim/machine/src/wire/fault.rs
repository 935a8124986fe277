//! Faults that meet packets of one opcode, or of any, in one direction of a wire.
//!
//! A [`Fault`] loses, repeats or delays such packets, or flips bits of them and, if wanted, makes checksum and ICRC right again, so
//! that the receiver sees a packet that its peer seems to have sent. [`Direction::set_faults`](super::Direction::set_faults) sets
//! them; which direction a fault belongs to is thereby decided by the wire. Frames that are no RoCEv2 packets are left alone.
use super::{Fate, Frame};
use rnic_layout::wire::{IpRepr, Ipv4Packet, PacketRepr, icrc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A byte of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Offset from the first byte of the Ethernet header.
    Frame(usize),
    /// Offset from the first byte of the BTH, whatever headers are before it.
    Bth(usize),
    /// Offset from the first byte after all headers: payload, pad, ICRC.
    Payload(usize),
}

/// What happens to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is lost, repeated or delayed.
    Fate(Fate),
    /// Bits of bytes are flipped. Bytes beyond the end of the frame are not there to be changed.
    Flip {
        /// Bytes, and the bits of each.
        bits: Vec<(Place, u8)>,
        /// The checksum of IPv4 and the ICRC are made right again.
        is_signed: bool,
    },
}

/// A fault of packets with one opcode, or with any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Opcode of the BTH, with its transport; `None` for any.
    pub opcode: Option<u8>,
    /// Such packets that pass before the first one that is met.
    pub after: u64,
    /// Packets that are met.
    pub times: u64,
    /// What happens to them.
    pub effect: Effect,
}

impl Fault {
    /// Makes a fault of the next packet with an opcode.
    pub fn new(opcode: u8, effect: Effect) -> Fault {
        Fault { opcode: Some(opcode), ..Fault::any(effect) }
    }

    /// Makes a fault of the next packet, whatever its opcode is.
    pub fn any(effect: Effect) -> Fault {
        Fault { opcode: None, after: 0, times: 1, effect }
    }

    /// Makes a fault that flips bits of one byte, and signs the packet again.
    pub fn forge(opcode: u8, place: Place, bits: u8) -> Fault {
        Fault::new(opcode, Effect::Flip { bits: vec![(place, bits)], is_signed: true })
    }

    /// Lets packets pass before the first that is met.
    #[must_use]
    pub fn after(self, after: u64) -> Fault {
        Fault { after, ..self }
    }

    /// Meets several packets, one after the other.
    #[must_use]
    pub fn times(self, times: u64) -> Fault {
        Fault { times, ..self }
    }
}

/// How many packets each fault has met. A test asks, so that it does not pass when its fault never happened.
#[derive(Clone, Debug)]
pub struct Hits(Arc<[AtomicU64]>);

impl Hits {
    /// Packets that the fault of this index has met.
    ///
    /// # Panics
    /// If there are not so many faults.
    pub fn of(&self, fault: usize) -> u64 {
        self.0[fault].load(Ordering::Relaxed)
    }
}

/// Offsets in a frame, and its opcode.
struct Offsets {
    ip: usize,
    is_ipv4: bool,
    bth: usize,
    payload: usize,
    icrc: usize,
    opcode: u8,
}

/// Finds the headers of a packet, unless it is no RoCEv2 packet.
fn offsets(frame: &[u8]) -> Option<Offsets> {
    let packet = PacketRepr::parse(frame).ok()?;
    let ip = packet.ethernet.buffer_len();
    Some(Offsets {
        ip,
        is_ipv4: matches!(packet.ip, IpRepr::V4(_)),
        bth: ip + packet.ip.buffer_len() + packet.udp.buffer_len(),
        payload: packet.header_bytes(),
        icrc: packet.buffer_len() - icrc::BYTES,
        opcode: packet.bth.opcode,
    })
}

/// Flips bits, and signs the packet again if wanted.
fn flip(frame: &mut [u8], offsets: &Offsets, bits: &[(Place, u8)], is_signed: bool) {
    for &(place, bits) in bits {
        let offset = match place {
            Place::Frame(offset) => offset,
            Place::Bth(offset) => offsets.bth + offset,
            Place::Payload(offset) => offsets.payload + offset,
        };
        if let Some(byte) = frame.get_mut(offset) {
            *byte ^= bits;
        }
    }
    if is_signed {
        if offsets.is_ipv4 {
            Ipv4Packet::new_unchecked(&mut frame[offsets.ip..]).fill_checksum();
        }
        let check = icrc::compute(&frame[offsets.ip..offsets.icrc]);
        frame[offsets.icrc..][..icrc::BYTES].copy_from_slice(&check);
    }
}

/// Faults of one direction, and what they have met.
pub(super) struct Faults {
    /// Each fault with the packets of its opcode so far.
    faults: Vec<(Fault, u64)>,
    hits: Hits,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults::new(Vec::new())
    }
}

impl Faults {
    pub(super) fn new(faults: Vec<Fault>) -> Faults {
        let hits = Hits(faults.iter().map(|_| AtomicU64::new(0)).collect());
        Faults { faults: faults.into_iter().map(|fault| (fault, 0)).collect(), hits }
    }

    pub(super) fn hits(&self) -> Hits {
        self.hits.clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Decides the fate of a frame by the first fault that is due, and changes it if that wants so.
    pub(super) fn meet(&mut self, frame: &mut Frame) -> Fate {
        if self.is_empty() {
            return Fate::Leave;
        }
        let Some(offsets) = offsets(&frame.bytes) else { return Fate::Leave };
        let mut due = None;
        for (index, (fault, seen)) in self.faults.iter_mut().enumerate() {
            if fault.opcode.is_none_or(|opcode| opcode == offsets.opcode) {
                let is_due = *seen >= fault.after && *seen - fault.after < fault.times;
                *seen += 1;
                due = due.or(is_due.then_some((index, &fault.effect)));
            }
        }
        let Some((index, effect)) = due else { return Fate::Leave };
        self.hits.0[index].fetch_add(1, Ordering::Relaxed);
        match effect {
            Effect::Fate(fate) => *fate,
            Effect::Flip { bits, is_signed } => {
                flip(&mut frame.bytes, &offsets, bits, *is_signed);
                Fate::Pass
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Direction, Hold, WireOptions};
    use super::*;
    use rnic_layout::opcode::Operation;
    use rnic_layout::wire::{DropReason, Filter, classify};
    use rnic_stimulus::chance::Seed;
    use rnic_stimulus::frames;

    const WRITE: u8 = Operation::WriteOnly.code();
    const SEND: u8 = Operation::SendOnly.code();

    /// Packets of one opcode with all kinds of headers around.
    fn packets(opcode: u8, count: usize) -> Vec<Frame> {
        let mut random = Seed(3).stream("faults");
        let mut payload = Vec::new();
        let mut frames = Vec::new();
        while frames.len() < count {
            let packet = frames::random_packet(&mut random, &mut payload);
            if packet.bth.opcode == opcode {
                frames.push(Frame::new(frames::frame_of(&packet)));
            }
        }
        frames
    }

    /// What arrives of the given frames.
    fn pass(faults: Vec<Fault>, frames: &[Frame]) -> (Vec<Frame>, Hits) {
        let mut direction = Direction::new(WireOptions::perfect(100_000_000_000), Seed(1), "wire");
        let hits = direction.set_faults(faults);
        for frame in frames {
            direction.send(0, 0, frame.clone());
        }
        (std::iter::from_fn(|| direction.arrive(u64::MAX)).map(|(_, frame)| frame).collect(), hits)
    }

    fn reason(frame: &Frame) -> Result<PacketRepr<'_>, DropReason> {
        classify(&frame.bytes, false, &Filter::PROMISCUOUS)
    }

    #[test]
    fn a_forged_packet_differs_in_one_field_and_is_signed() {
        let frames = packets(WRITE, 40);
        // The lowest byte of the R_Key: after 12 bytes of BTH and 8 of address.
        let fault = Fault::forge(WRITE, Place::Bth(12 + 8 + 3), 0x81).times(u64::MAX);
        let (arrived, hits) = pass(vec![fault], &frames);
        assert_eq!((arrived.len(), hits.of(0)), (frames.len(), frames.len() as u64));
        let mut versions = [0, 0];
        for (before, after) in frames.iter().zip(&arrived) {
            let (before, after) = (reason(before).unwrap(), reason(after).unwrap());
            let mut keys = before.extended.as_bytes().to_vec();
            keys[8 + 3] ^= 0x81;
            assert_eq!(after.extended.as_bytes(), keys);
            assert_eq!((after.bth, after.payload), (before.bth, before.payload));
            versions[usize::from(matches!(after.ip, IpRepr::V4(_)))] += 1;
        }
        assert!(versions.iter().all(|&count| count > 0), "both versions of IP: {versions:?}");
    }

    #[test]
    fn a_packet_that_is_not_signed_again_is_refused() {
        let frames = packets(WRITE, 5);
        let effect = Effect::Flip { bits: vec![(Place::Bth(9), 1)], is_signed: false };
        let (arrived, _) = pass(vec![Fault::new(WRITE, effect).times(5)], &frames);
        assert!(arrived.iter().all(|frame| reason(frame) == Err(DropReason::Icrc)));
    }

    #[test]
    fn the_ip_header_is_signed_too() {
        let frames = packets(SEND, 30);
        let is_plain = |frame: &&Frame| {
            let packet = reason(frame).unwrap();
            matches!(packet.ip, IpRepr::V4(_)) && packet.ethernet.buffer_len() == 14
        };
        let frames: Vec<Frame> = frames.iter().filter(is_plain).cloned().collect();
        assert!(!frames.is_empty());
        // The lowest byte of the source address.
        let (arrived, _) = pass(vec![Fault::forge(SEND, Place::Frame(14 + 15), 0x40).times(30)], &frames);
        for (before, after) in frames.iter().zip(&arrived) {
            assert_ne!(reason(before).unwrap().ip.source(), reason(after).unwrap().ip.source());
        }
    }

    #[test]
    fn a_fault_meets_its_opcode_in_its_turn_only() {
        let (writes, sends) = (packets(WRITE, 4), packets(SEND, 4));
        let mixed: Vec<Frame> = sends.iter().zip(&writes).flat_map(|(s, w)| [s.clone(), w.clone()]).collect();
        let lose = Fault::new(WRITE, Effect::Fate(Fate::Lose)).after(1).times(2);
        let twice = Fault::new(SEND, Effect::Fate(Fate::Duplicate)).after(3);
        let never = Fault::new(Operation::ReadRequest.code(), Effect::Fate(Fate::Lose));
        let (arrived, hits) = pass(vec![lose, twice, never], &mixed);
        assert_eq!([0, 1, 2].map(|fault| hits.of(fault)), [2, 1, 0]);
        let of = |list: &[Frame], wanted: &Frame| list.iter().filter(|frame| *frame == wanted).count();
        let written: Vec<usize> = writes.iter().map(|frame| of(&arrived, frame)).collect();
        let sent: Vec<usize> = sends.iter().map(|frame| of(&arrived, frame)).collect();
        assert_eq!((written, sent), (vec![1, 0, 0, 1], vec![1, 1, 1, 2]));
    }

    #[test]
    fn a_fault_of_any_opcode_counts_all_packets() {
        let (writes, sends) = (packets(WRITE, 2), packets(SEND, 3));
        let frames = [&sends[0], &writes[0], &sends[1], &writes[1], &sends[2]].map(Clone::clone);
        let lose = Fault::any(Effect::Fate(Fate::Lose)).after(2);
        let hold = Fault::any(Effect::Fate(Fate::HoldBack(Hold::frames(1)))).after(1);
        let (arrived, hits) = pass(vec![lose, hold], &frames);
        assert_eq!([0, 1].map(|fault| hits.of(fault)), [1, 1]);
        assert_eq!(
            arrived,
            [0, 3, 1, 4].map(|index| frames[index].clone()),
            "what is lost overtakes nothing"
        );
    }

    #[test]
    fn a_copy_of_one_opcode_comes_late() {
        let frames = packets(WRITE, 4);
        let late = Fault::new(WRITE, Effect::Fate(Fate::CopyLate(Hold::frames(2)))).after(1);
        let (arrived, hits) = pass(vec![late], &frames);
        assert_eq!((arrived, hits.of(0)), ([0, 1, 2, 3, 1].map(|index| frames[index].clone()).to_vec(), 1));
    }

    #[test]
    fn faults_meet_what_the_script_leaves() {
        let frames = packets(WRITE, 5);
        let mut direction = Direction::new(WireOptions::perfect(100_000_000_000), Seed(1), "wire");
        let hits = direction.set_faults(vec![Fault::any(Effect::Fate(Fate::Duplicate)).after(1)]);
        direction.set_script(Some(Box::new(|index, _| if index == 1 { Fate::Lose } else { Fate::Leave })));
        for frame in &frames {
            direction.send(0, 0, frame.clone());
        }
        let arrived: Vec<Frame> =
            std::iter::from_fn(|| direction.arrive(u64::MAX)).map(|(_, frame)| frame).collect();
        assert_eq!((arrived, hits.of(0)), ([0, 2, 2, 3, 4].map(|index| frames[index].clone()).to_vec(), 1));
    }

    #[test]
    fn what_is_no_packet_is_left_alone() {
        let frames = [Frame::new(vec![0xff; 80]), Frame::new(vec![0; 14])];
        let lose = Fault::any(Effect::Fate(Fate::Lose)).times(9);
        let (arrived, hits) = pass(vec![Fault::forge(0xff, Place::Frame(0), 1).times(9), lose], &frames);
        assert_eq!((arrived.as_slice(), hits.of(0), hits.of(1)), (&frames[..], 0, 0));
    }
}
