//! Weight: how much of the wire the messages of a queue pair take, so that its turns take equal shares of it
//! (design decision 10).
//!
//! A WQE says how long its message is only when it has been fetched, and a host answers after a microsecond, in
//! which the card could fetch hundreds. So each queue pair has a weight, an estimate of the length of its next
//! messages, by which its bursts of WQE slots are counted while they are in the line from wqe_fetch to segment.
//!
//! 1. Lengths count in units of 128 bytes, 1 to 128, rounded up to a power of two: weight w stands for 2^w units.
//!    A message of more than a quantum counts as a quantum, and one without payload to send as one unit.
//! 2. The weight follows the mean: it rises when messages have been 64 units longer in sum than estimated, and
//!    falls when they have been more than that shorter. So it rises by one for a long message among short ones.
//! 3. A burst takes slots for a quantum of 16 KiB as estimated, at least one, and at most eight; a turn takes bursts
//!    for a quantum.
//! 4. Where a queue pair is, or becomes, four times as heavy as the burst of a message was counted, what is behind
//!    the message waits as behind a long one: what was fetched is dropped, and fetched again as what it is. So no
//!    queue pair fills the line with messages that were counted as short ones.
use crate::messages::{BURST_SLOTS, QUANTUM_BITS};
use rnic_kernel::prelude::*;
use rnic_messages::sizes::QUEUE_PAIR_BITS;

/// Width of a weight.
pub const WEIGHT_BITS: usize = 3;
/// `log2` of the bytes of a unit.
const UNIT_BITS: usize = 7;
/// The weight of messages of a quantum and more.
const WEIGHT_MAX: u64 = (QUANTUM_BITS - UNIT_BITS) as u64;
/// Width of a number of units, 0 to 256.
pub const CHARGE_BITS: usize = 9;
/// Units of a quantum.
pub const QUANTUM_UNITS: u64 = 1 << WEIGHT_MAX;
/// Most units of a burst.
pub const CHARGE_MAX: u64 = 1 << (WEIGHT_MAX + 1);
/// Weight that the bursts of kept_slots count as.
pub const KEPT_WEIGHT: u64 = 4;
/// Width of the difference of the sums of actual and of estimated units, in two's complement. The weight changes when
/// it leaves that range.
const BALANCE_BITS: usize = 7;
/// Width of that difference after one more message.
const SUM_BITS: usize = 9;

/// Estimate of the messages of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Estimate {
    /// `log2` of the units of a message, 0 to 7.
    pub weight: Bits<WEIGHT_BITS>,
    /// Units by which messages were longer than estimated since the weight has changed.
    pub balance: Bits<BALANCE_BITS>,
}

/// Weight of a queue pair as wqe_parse writes it for wqe_fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WeightWrite {
    /// Queue pair.
    pub queue_pair: Bits<QUEUE_PAIR_BITS>,
    /// Its weight from now on.
    pub weight: Bits<WEIGHT_BITS>,
    /// It is written.
    pub valid: Bit,
}

/// Weight of one message with so many bytes of payload to send.
#[kernel]
pub fn weight_of(length: Bits<32>) -> Bits<WEIGHT_BITS> {
    let last_byte = length - 1;
    let above = last_byte.get_bits::<25>(UNIT_BITS);
    if !length.any() {
        bits::<WEIGHT_BITS>(0)
    } else if above.get_bits::<19>(6).any() {
        bits::<WEIGHT_BITS>(WEIGHT_MAX)
    } else if above.get_bit(5) {
        bits::<WEIGHT_BITS>(6)
    } else if above.get_bit(4) {
        bits::<WEIGHT_BITS>(5)
    } else if above.get_bit(3) {
        bits::<WEIGHT_BITS>(4)
    } else if above.get_bit(2) {
        bits::<WEIGHT_BITS>(3)
    } else if above.get_bit(1) {
        bits::<WEIGHT_BITS>(2)
    } else {
        bit_cast::<WEIGHT_BITS, 1>(above.get_bits::<1>(0))
    }
}

/// What is known about a message before its weight is: a cycle earlier, since it is long to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Outlook {
    /// The balance without the units that the message has.
    pub debit: Bits<SUM_BITS>,
    /// The queue pair is twice as heavy as the burst of the message was counted.
    pub is_heavier: Bit,
    /// It is four times as heavy.
    pub is_much_heavier: Bit,
}

/// What is known about the next message of a queue pair; `counted` is the weight of its burst.
#[kernel]
pub fn outlook_of(estimate: Estimate, counted: Bits<WEIGHT_BITS>) -> Outlook {
    let sign = estimate.balance.get_bit(BALANCE_BITS - 1);
    let balance: Bits<SUM_BITS> = cat!(sign, sign, estimate.balance);
    Outlook {
        debit: balance - (bits::<SUM_BITS>(1) << estimate.weight),
        is_heavier: estimate.weight > counted,
        is_much_heavier: estimate.weight > counted && estimate.weight != counted + 1,
    }
}

/// The estimate after a message of a weight.
#[kernel]
pub fn estimate_after(estimate: Estimate, outlook: Outlook, message: Bits<WEIGHT_BITS>) -> Estimate {
    let sum = outlook.debit + (bits::<SUM_BITS>(1) << message);
    let is_negative = sum.get_bit(SUM_BITS - 1);
    let upper = sum.get_bits::<2>(BALANCE_BITS - 1);
    let is_longer = !is_negative && upper.any();
    let is_shorter = is_negative && upper != 3;
    let rises = is_longer && estimate.weight != WEIGHT_MAX;
    let falls = is_shorter && estimate.weight.any();
    let risen = select(rises, estimate.weight + 1, estimate.weight);
    Estimate {
        weight: select(falls, estimate.weight - 1, risen),
        balance: select(is_longer || is_shorter, bits::<BALANCE_BITS>(0), sum.get_bits::<BALANCE_BITS>(0)),
    }
}

/// Says whether a queue pair is, or becomes with a message, four times as heavy as the burst of the message was counted.
#[kernel]
pub fn is_too_heavy(before: Estimate, outlook: Outlook, after: Estimate) -> Bit {
    outlook.is_much_heavier || (outlook.is_heavier && after.weight == before.weight + 1)
}

/// Most slots of a burst: those of a quantum, and one more, which the next burst has as well.
#[kernel]
pub fn most_slots(weight: Bits<WEIGHT_BITS>) -> Bits<4> {
    match weight.to_u64() {
        5 => bits::<4>(5),
        6 => bits::<4>(3),
        7 => bits::<4>(2),
        _ => bits::<4>(BURST_SLOTS),
    }
}

/// Units of the slots that only this burst has.
#[kernel]
pub fn charge_of(count: Bits<4>, has_more: Bit, weight: Bits<WEIGHT_BITS>) -> Bits<CHARGE_BITS> {
    let new = select(has_more, count - 1, count);
    bit_cast::<CHARGE_BITS, 4>(new) << weight
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(mut estimate: Estimate, messages: impl IntoIterator<Item = u64>) -> Estimate {
        for bytes in messages {
            estimate = estimate_after(estimate, outlook_of(estimate, bits(0)), weight_of(bits(bytes)));
        }
        estimate
    }

    #[test]
    fn lengths_round_up_to_a_power_of_two_units() {
        for (bytes, expected) in [
            (0, 0),
            (1, 0),
            (128, 0),
            (129, 1),
            (256, 1),
            (257, 2),
            (512, 2),
            (513, 3),
            (1024, 3),
            (2048, 4),
            (4096, 5),
            (4097, 6),
            (8192, 6),
            (8193, 7),
            (16_384, 7),
            (16_385, 7),
            (1 << 31, 7),
            (0xffff_ffff, 7),
        ] {
            assert_eq!(weight_of(bits(bytes)).to_u64(), expected, "{bytes} bytes");
        }
    }

    #[test]
    fn the_weight_becomes_that_of_messages_of_one_length() {
        for bytes in [64, 128, 256, 300, 1000, 1024, 2048, 3000, 4096, 8192, 16_384, 1 << 20] {
            let own = weight_of(bits(bytes));
            for first in [0u64, 3, 7] {
                let estimate = Estimate { weight: bits(first), balance: bits(0) };
                let end = after(estimate, std::iter::repeat_n(bytes, 400));
                assert!(
                    end.weight.to_u64().abs_diff(own.to_u64()) <= 1,
                    "{bytes} bytes from weight {first}: {end:?}"
                );
                assert!(end.weight >= own, "{bytes} bytes from weight {first}: {end:?}");
            }
        }
    }

    /// Units that are counted are those of the messages within a factor of two, whatever the mixture is.
    #[test]
    fn what_is_counted_is_what_is_sent() {
        for (short, long, of) in
            [(64, 16_384, 2), (64, 16_384, 10), (64, 4096, 8), (512, 4096, 3), (64, 2048, 100)]
        {
            let mut estimate = Estimate::default();
            let (mut counted, mut sent) = (0, 0);
            for message in 0..4000 {
                let bytes = if message % of == 0 { long } else { short };
                counted += 1u64 << estimate.weight.to_u64();
                sent += 1u64 << weight_of(bits(bytes)).to_u64();
                estimate = after(estimate, [bytes]);
            }
            let ratio = counted as f64 / sent as f64;
            assert!((0.5..=2.0).contains(&ratio), "1 of {of} has {long} bytes: {counted} units for {sent}");
        }
    }

    #[test]
    fn the_weight_changes_when_the_balance_leaves_its_range() {
        // Weight, balance, weight of the message; then weight and balance.
        for (weight, balance, message, expected) in [
            (0, 0, 0, (0, 0)),
            (0, 0, 6, (0, 63)),
            (0, 63, 1, (1, 0)),
            (0, 0, 7, (1, 0)),
            (7, 63, 7, (7, 63)),
            (6, 0, 7, (7, 0)),
            (7, 0, 0, (6, 0)),
            (6, 0, 0, (6, -63)),
            (6, -63, 5, (5, 0)),
            (1, -63, 0, (1, -64)),
            (1, -64, 0, (0, 0)),
            (0, -64, 0, (0, -64)),
        ] {
            let estimate = Estimate { weight: bits(weight), balance: bits(balance as u64 & 127) };
            let found = estimate_after(estimate, outlook_of(estimate, bits(0)), bits(message));
            let expected = Estimate { weight: bits(expected.0), balance: bits(expected.1 as u64 & 127) };
            assert_eq!(found, expected, "weight {weight}, balance {balance}, message {message}");
        }
    }

    #[test]
    fn four_times_as_heavy_is_too_heavy() {
        // Weight and balance of a queue pair, weight of its message and of the burst.
        for (weight, balance, message, counted, expected) in [
            (0u64, 0u64, 7, 0, false),
            (1, 0, 7, 0, true),
            (1, 0, 5, 0, false),
            (1, 0, 7, 1, false),
            (2, 0, 2, 0, true),
            (7, 0, 7, 5, true),
            (7, 0, 7, 6, false),
            (0, 0, 7, 7, false),
        ] {
            let estimate = Estimate { weight: bits(weight), balance: bits(balance) };
            let outlook = outlook_of(estimate, bits(counted));
            let after = estimate_after(estimate, outlook, bits(message));
            let name = format!("weight {weight}, message {message} counted as {counted}");
            assert_eq!(is_too_heavy(estimate, outlook, after), expected, "{name}");
        }
    }

    #[test]
    fn a_burst_has_new_slots_for_a_quantum() {
        for (weight, slots, charge) in
            [(0, 8, 7), (1, 8, 14), (4, 8, 112), (5, 5, 128), (6, 3, 128), (7, 2, 128)]
        {
            assert_eq!(most_slots(bits(weight)).to_u64(), slots, "weight {weight}");
            assert_eq!(charge_of(bits(slots), true, bits(weight)).to_u64(), charge, "weight {weight}");
            assert!(charge_of(bits(slots), false, bits(weight)) <= CHARGE_MAX, "weight {weight}");
        }
    }
}
