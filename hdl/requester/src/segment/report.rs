//! Rules of [`Segment`](super::Segment) about what the ready line is told: what was sent, and what is left
//! (design decision 10).
use crate::messages::{DEBT_BITS, SegmentReport};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// Width of a number of units of 64 bytes: as many as a report can name.
pub(super) const UNITS_BITS: usize = DEBT_BITS + 4;
/// Rounds of the ready line until a queue pair looks again whether its window is open.
const WINDOW_ROUNDS: u64 = 8;

/// What was sent and is not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub(super) struct Sent {
    /// In a turn, not of WQEs of a burst.
    pub is_turn: Bit,
    /// Packets before this one, in units of 64 bytes.
    pub units: Bits<UNITS_BITS>,
    /// Payload of this packet, in bytes.
    pub packet: Bits<13>,
    /// Nothing is sent with it.
    pub sends_nothing: Bit,
}

/// Units with a packet, which counts as 64 bytes more than its payload; with the most that can be counted it stays.
#[kernel]
pub(super) fn with_packet(sent: Sent) -> Bits<UNITS_BITS> {
    let payload = select(sent.sends_nothing, bits::<7>(0), sent.packet.get_bits::<7>(6));
    let count = bit_cast::<11, 7>(payload) + bit_cast::<11, 1>((!sent.sends_nothing).into());
    let sum = bit_cast::<11, UNITS_BITS>(sent.units) + count;
    select(sum.get_bit(UNITS_BITS), !bits::<UNITS_BITS>(0), sum.get_bits::<UNITS_BITS>(0))
}

/// Units after a cycle in which a packet was made, or what was sent is reported.
#[kernel]
pub(super) fn next_units(units: Bits<UNITS_BITS>, sent: Sent, makes: Bit, reports: Bit) -> Bits<UNITS_BITS> {
    if reports {
        bits::<UNITS_BITS>(0)
    } else if makes {
        with_packet(sent)
    } else {
        units
    }
}

/// The report of the last packet of a burst, if `ends_burst`, or of the end of a quantum. A turn that could not begin
/// has sent nothing, and is delayed.
#[kernel]
pub(super) fn report_of(
    queue_pair: Bits<QUEUE_PAIR_BITS>,
    sent: Sent,
    ends_burst: Bit,
    has_rest: Bit,
) -> SegmentReport {
    let units = select(ends_burst, with_packet(sent), sent.units);
    let is_delayed = !ends_burst && sent.is_turn && !sent.units.any();
    let kibibytes = units.get_bits::<DEBT_BITS>(4);
    SegmentReport {
        queue_pair,
        has_rest,
        ends_burst,
        kibibytes: select(is_delayed, bits::<DEBT_BITS>(WINDOW_ROUNDS), kibibytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(units: u64, packet: u64) -> Sent {
        Sent { units: bits(units), packet: bits(packet), ..Sent::default() }
    }

    #[test]
    fn a_packet_counts_as_64_bytes_more_than_its_payload() {
        for (units, packet, sends_nothing, expected) in [
            (0, 0, false, 1),
            (0, 63, false, 1),
            (0, 64, false, 2),
            (10, 4096, false, 75),
            (10, 4096, true, 10),
            (1000, 1024, false, 1017),
            (1000, 4096, false, 1023),
            (1023, 0, false, 1023),
        ] {
            let sent = Sent { sends_nothing, ..sent(units, packet) };
            assert_eq!(with_packet(sent), bits(expected), "{sent:?}");
            assert_eq!(next_units(bits(units), sent, true, false), bits(expected));
            assert_eq!(next_units(bits(units), sent, false, false), bits(units));
            assert_eq!(next_units(bits(units), sent, true, true), bits(0));
        }
    }

    #[test]
    fn a_report_names_whole_units_of_1024_bytes() {
        let turn = Sent { is_turn: true, ..sent(260, 4096) };
        let closed = Sent { units: bits(0), ..turn };
        // Sent, with the last packet of a burst, with a rest; units of 1,024 bytes.
        for (sent, ends_burst, has_rest, expected) in [
            (sent(14, 0), true, false, 0),
            (sent(15, 0), true, false, 1),
            (sent(15, 0), false, true, 0),
            (sent(260, 4096), true, true, 20),
            (turn, false, true, 16),
            (turn, false, false, 16),
            (closed, false, true, 8),
        ] {
            let report = report_of(bits(5), sent, ends_burst, has_rest);
            let expected =
                SegmentReport { queue_pair: bits(5), has_rest, ends_burst, kibibytes: bits(expected) };
            assert_eq!(report, expected, "{sent:?}");
        }
    }
}
