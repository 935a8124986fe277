//! Capacity of the wire: the frames of one message, and the rate of payload on a wire that is saturated with them.
use rnic_layout::opcode::{self, BTH_BYTES, Class};
use rnic_layout::path::Pmtu;
use rnic_workloads::plan::Kind;

/// Overhead of a frame, in bytes: preamble, Ethernet, IPv4, UDP; ICRC, FCS, and the gap between frames.
const AROUND_BYTES: usize = 8 + 14 + 20 + 8 + 4 + 4 + 12;
/// Bytes of the shortest Ethernet frame, with preamble and gap.
const SHORTEST_BYTES: usize = 8 + 64 + 12;
/// Bytes of a RETH, an AETH, and an AtomicAckETH.
const RETH_BYTES: usize = 16;
const AETH_BYTES: usize = 4;
const ATOMIC_ACK_BYTES: usize = 8;
/// Byte of the opcode, behind Ethernet, IPv4 and UDP.
const OPCODE_BYTE: usize = 14 + 20 + 8;

/// Returns whether a frame of the bench, untagged and over IPv4, carries a message of this kind, as [`Frames`] counts them: not an
/// acknowledgement, nor a request that is answered.
pub(super) fn carries_message(kind: Kind, frame: &[u8]) -> bool {
    let class = frame.get(OPCODE_BYTE).and_then(|&code| opcode::class(code));
    let is_response = class == Some(Class::Response);
    if kind.is_answered() { is_response } else { class == Some(Class::Request) }
}

/// Frames of one message that carry its payload: of a READ, the responses; of an atomic, the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Number of frames.
    pub count: usize,
    /// Sum of their lengths on the wire, with preamble and gap.
    pub wire_bytes: usize,
    /// Message length.
    payload_bytes: usize,
}

impl Frames {
    /// Segments a message (protocol 2.1).
    pub fn new(kind: Kind, bytes: usize, pmtu: Pmtu) -> Frames {
        let pmtu = pmtu.bytes() as usize;
        let count = bytes.div_ceil(pmtu).max(1);
        let frame = |index: usize| {
            // The answer of an atomic is in a header.
            let payload = if kind.is_atomic() { 0 } else { (bytes - index * pmtu).min(pmtu) };
            let is_last = index + 1 == count;
            let address = match kind {
                Kind::Read if index == 0 || is_last => AETH_BYTES,
                _ if kind.is_atomic() => AETH_BYTES + ATOMIC_ACK_BYTES,
                _ if kind.is_write() && index == 0 => RETH_BYTES,
                _ => 0,
            };
            let has_word = kind.has_immediate() || kind == Kind::SendInvalidate;
            let immediate = if has_word && is_last { 4 } else { 0 };
            let headers = AROUND_BYTES + BTH_BYTES + address + immediate;
            (headers + payload.next_multiple_of(4)).max(SHORTEST_BYTES)
        };
        Frames { count, wire_bytes: (0..count).map(frame).sum(), payload_bytes: bytes }
    }

    /// Messages per second on a saturated wire.
    pub fn most_a_second(&self, bits_per_second: u64) -> f64 {
        bits_per_second as f64 / (self.wire_bytes * 8) as f64
    }

    /// Rate of payload on a saturated wire, in Gb/s.
    pub fn payload_gbps(&self, bits_per_second: u64) -> f64 {
        self.most_a_second(bits_per_second) * (self.payload_bytes * 8) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of design 8, at 100 Gb/s.
    #[test]
    fn a_full_wire_carries_what_the_design_says() {
        let wire = 100_000_000_000;
        let frames = |kind, bytes, pmtu| Frames::new(kind, bytes, pmtu);
        let near = |value: f64, wanted: f64| assert!((value - wanted).abs() < 0.05, "{value} for {wanted}");
        near(frames(Kind::Send, 4096, Pmtu::Bytes4096).payload_gbps(wire), 98.0);
        near(frames(Kind::Send, 1 << 20, Pmtu::Bytes1024).payload_gbps(wire), 92.6);
        near(frames(Kind::Send, 64, Pmtu::Bytes4096).most_a_second(wire) / 1e6, 85.6);
        near(frames(Kind::Write, 64, Pmtu::Bytes256).most_a_second(wire) / 1e6, 77.2);
    }

    #[test]
    fn headers_stand_in_the_first_packet_and_in_the_last() {
        let wire = |kind, bytes| Frames::new(kind, bytes, Pmtu::Bytes256).wire_bytes;
        assert_eq!(wire(Kind::Send, 513), 3 * 82 + 516);
        assert_eq!(wire(Kind::Write, 513), wire(Kind::Send, 513) + 16);
        assert_eq!(wire(Kind::WriteImmediate, 513), wire(Kind::Write, 513) + 4);
        assert_eq!(wire(Kind::Read, 513), wire(Kind::Send, 513) + 2 * 4);
        assert_eq!(wire(Kind::Read, 100), wire(Kind::Send, 100) + 4);
        assert_eq!(wire(Kind::FetchAdd, 8), 82 + 4 + 8);
        assert_eq!(
            (wire(Kind::Send, 0), wire(Kind::Send, 4), Frames::new(Kind::Send, 0, Pmtu::Bytes256).count),
            (84, 86, 1)
        );
    }

    #[test]
    fn a_frame_carries_a_message_or_answers_one() {
        let frame = |code: u8| [&[0; OPCODE_BYTE][..], &[code; BTH_BYTES]].concat();
        // WRITE first, SEND only, ACK; READ request, READ response middle; FETCH_ADD, its answer; congestion notification.
        for (code, by_write, by_read) in [
            (0x06, true, false),
            (0x04, true, false),
            (0x11, false, true),
            (0x0c, true, false),
            (0x0e, false, true),
            (0x14, true, false),
            (0x12, false, true),
            (0x81, false, false),
        ] {
            let carries = |kind| carries_message(kind, &frame(code));
            assert_eq!((carries(Kind::Write), carries(Kind::Read)), (by_write, by_read), "opcode {code:#x}");
            assert_eq!(
                (carries(Kind::Send), carries(Kind::FetchAdd)),
                (by_write, by_read),
                "opcode {code:#x}"
            );
        }
        assert!(!carries_message(Kind::Write, &[0; OPCODE_BYTE]));
    }
}
