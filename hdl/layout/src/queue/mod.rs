#![doc = include_str!("../manual/queues.md")]

pub mod send;
pub mod receive;
pub mod completion;
pub mod event;

/// Last byte of an entry that software marks as unwritten, whatever the phase of the pass: no entry that the card writes ends with it.
pub const UNWRITTEN: u8 = 0xfe;

/// Returns the phase bit of a valid CQE, EQE or admin answer at a free-running index, in a ring of 2^`log2` entries.
pub const fn phase(index: u32, log2: u32) -> bool {
    index >> log2 & 1 == 0
}

/// Compares the members of a memory image with its table: every member begins where a field (or reserved bits) begins and ends
/// where one ends, a member of a field's name is exactly that field, and the members cover the record.
#[cfg(test)]
macro_rules! pin {
    ($image:ty, $record:expr, [$($member:ident),+ $(,)?]) => {{
        use $crate::field::Span;
        let record = $record;
        let mut covered = 0;
        $({
            let first = core::mem::offset_of!($image, $member) as u32 * 8;
            let size = {
                fn size<T, U>(_: fn(&T) -> &U) -> usize { core::mem::size_of::<U>() }
                size(|image: &$image| &image.$member)
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
                // A number of 24 bits may be in a member of 32 bits, over reserved bits.
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
        assert_eq!(core::mem::size_of::<$image>(), record.bytes());
        assert_eq!(core::mem::align_of::<$image>(), 1, "an image can be at any address");
    }};
}
#[cfg(test)]
pub(crate) use pin;

#[cfg(test)]
mod tests {
    use super::completion::Cqe;
    use super::event::Eqe;
    use super::{UNWRITTEN, phase};
    use crate::admin::Answer;

    #[test]
    fn the_phase_inverts_at_every_pass() {
        assert!(phase(0, 6) && phase(63, 6));
        assert!(!phase(64, 6) && !phase(127, 6));
        assert!(phase(128, 6));
    }

    #[test]
    fn zeroed_memory_is_not_valid_in_the_first_pass() {
        assert!(phase(0, 6), "the first pass must differ from zero");
    }

    #[test]
    fn the_mark_of_unwritten_entries_has_reserved_bits() {
        for record in [&Cqe::RECORD, &Eqe::RECORD, &Answer::RECORD] {
            let mut bytes = [0; 32];
            let last = record.bits as usize / 8 - 1;
            bytes[last] = UNWRITTEN;
            assert!(record.check_reserved(&bytes[..=last]).is_err(), "{}", record.name);
        }
    }
}
