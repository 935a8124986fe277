//! What stands in host memory between a process and the card: work, completions, events.
//!
//! Every entry exists twice here. The *entry* (`SendEntry`) is the memory itself, a `zerocopy` type with little-endian
//! members at their places, for software that fills a ring. The *value* (`SendWork`) is what the entry says, with
//! `parse` and `emit`, which check everything and name the field that is wrong. Tests pin both to one table.
//!
//! # Rings without an ownership bit
//!
//! Send, receive and shared receive rings carry no bit that says who owns a slot; the doorbell's producer index does.
//! Software writes the slots, then the index; the card never reads a slot at or beyond the index. A send entry takes
//! one slot of 64 bytes or two; a second slot follows the first in slot order and may stand at the ring's beginning
//! when the first stands at its end: entries wrap by slot, and no slot is skipped. A slot is free again when a
//! completion's `consumer_index` has passed it.
//!
//! # Rings with a phase bit
//!
//! Completions, events and admin answers carry a phase in their last byte. A ring starts zeroed, and the card writes
//! phase 1 in its first pass, 0 in its second, and so on: the phase of the entry with free-running index *i* in a ring
//! of 2^n entries is `!(i >> n) & 1` ([`phase`]). An entry is valid when its phase is that of the reader's own index. The phase is
//! written last: the card writes an entry in one request, and hosts make the last byte of a request visible no
//! earlier than those before it. The card never writes over an entry that was not yet read; it knows the consumer
//! index from the doorbell.

pub mod completion;
pub mod event;
pub mod receive;
pub mod send;

/// Gives the phase that a valid entry carries at a free-running index, in a ring of 2^`log2` entries.
pub const fn phase(index: u32, log2: u32) -> bool {
    index >> log2 & 1 == 0
}

/// Holds the members of an entry in memory to its table: every member begins where a field (or reserved bits) begins
/// and ends where one ends, a member of a field's name is exactly that field, and the members cover the record.
#[cfg(test)]
macro_rules! pin {
    ($entry:ty, $record:expr, [$($member:ident),+ $(,)?]) => {{
        use $crate::field::Span;
        let record = $record;
        let mut covered = 0;
        $({
            let first = core::mem::offset_of!($entry, $member) as u32 * 8;
            let size = {
                fn size<T, U>(_: fn(&T) -> &U) -> usize { core::mem::size_of::<U>() }
                size(|entry: &$entry| &entry.$member)
            };
            let end = first + size as u32 * 8;
            let name = stringify!($member);
            assert_eq!(first, covered, "{name} does not follow its neighbour");
            let bounds = |bit: u32| record.spans().any(|span| match span {
                Span::Field(field) => field.offset == bit || field.end() == bit,
                Span::Reserved(first, end) => first <= bit && bit <= end,
            });
            assert!(bounds(first) && bounds(end), "{name} cuts a field");
            if let Some(field) = record.fields.iter().find(|field| field.name == name) {
                // A number of 24 bits stands in a member of 32, over reserved bits.
                assert_eq!(field.offset, first, "{name} begins elsewhere");
                assert!(field.end() <= end, "{name} is shorter than its field");
                for other in record.fields {
                    let inside = other.offset >= first && other.offset < end;
                    assert!(!inside || other.name == name, "{name} also covers {}", other.name);
                }
            }
            covered = end;
        })+
        assert_eq!(covered, record.bits, "the members do not cover the record");
        assert_eq!(core::mem::size_of::<$entry>(), record.bytes());
        assert_eq!(core::mem::align_of::<$entry>(), 1, "entries can stand anywhere in memory");
    }};
}
#[cfg(test)]
pub(crate) use pin;

#[cfg(test)]
mod tests {
    use super::phase;

    #[test]
    fn the_phase_turns_at_every_pass() {
        assert!(phase(0, 6) && phase(63, 6));
        assert!(!phase(64, 6) && !phase(127, 6));
        assert!(phase(128, 6));
    }

    #[test]
    fn zeroed_memory_is_not_valid_in_the_first_pass() {
        assert!(phase(0, 6), "the first pass must differ from zero");
    }
}
