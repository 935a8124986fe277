//! Tables of wire headers, and the macro that makes constants, view and representation from a table.
//!
//! Wire headers are big-endian. As in the specification, the position of a field is the byte in which it starts and its most
//! significant bit in that byte, bit 7 being the most significant. A wider field continues through the low bits of that byte into
//! the following bytes.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::psn::Psn;

/// One field of a wire header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in `snake_case`.
    pub name: &'static str,
    /// Byte in which the field starts, counted from the start of its header.
    pub byte: usize,
    /// Most significant bit of the field in that byte, 7 to 0.
    pub bit: usize,
    /// Width in bits, 1 to 128.
    pub width: usize,
    /// Unit or kind of the number: bytes, flag, code, key, ...
    pub unit: &'static str,
    /// Meaning, as full sentences.
    pub meaning: &'static str,
    /// Citation of the rule, as `protocol 1.3`.
    pub section: &'static str,
}

impl Field {
    /// Returns the offset of the field's first bit from the first bit of the header on the wire.
    pub const fn first_bit(&self) -> usize {
        self.byte * 8 + 7 - self.bit
    }

    /// Returns the index of the first byte after the field.
    pub const fn end_byte(&self) -> usize {
        (self.first_bit() + self.width).div_ceil(8)
    }

    /// Returns the number of bits below the field in its last byte.
    const fn trailing_bits(&self) -> usize {
        self.end_byte() * 8 - self.first_bit() - self.width
    }

    /// Returns a mask of `width` ones in the low bits.
    const fn ones(&self) -> u128 {
        u128::MAX >> (128 - self.width)
    }

    /// Reads the field.
    ///
    /// # Panics
    ///
    /// If `header` ends before the field. The views check the length once, in `new_checked`.
    pub const fn get(&self, header: &[u8]) -> u128 {
        let mut bits = 0;
        let mut index = self.byte;
        while index < self.end_byte() {
            bits = bits << 8 | header[index] as u128;
            index += 1;
        }
        bits >> self.trailing_bits() & self.ones()
    }

    /// Writes the field and preserves other bits. `value` is truncated to the width.
    ///
    /// # Panics
    ///
    /// If `header` ends before the field.
    pub const fn set(&self, header: &mut [u8], value: u128) {
        let mut ones = self.ones() << self.trailing_bits();
        let mut bits = (value << self.trailing_bits()) & ones;
        let mut index = self.end_byte();
        while index > self.byte {
            index -= 1;
            header[index] = header[index] & !(ones as u8) | bits as u8;
            ones >>= 8;
            bits >>= 8;
        }
    }
}

/// A header: its name, size and fields.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Name in the specification.
    pub name: &'static str,
    /// Size on the wire, in bytes.
    pub bytes: usize,
    /// The fields in wire order, without gap or overlap.
    pub fields: &'static [Field],
}

/// Proves, at compile time, that fields are in wire order and cover a header without gap or overlap.
pub(super) const fn prove_cover(fields: &[Field], bytes: usize) {
    let mut next_bit = 0;
    let mut index = 0;
    while index < fields.len() {
        let field = &fields[index];
        assert!(field.bit < 8, "a bit outside its byte");
        assert!(field.width >= 1 && field.width <= 128, "an impossible width");
        assert!(field.end_byte() - field.byte <= 16, "a field over more bytes than a number holds");
        assert!(field.first_bit() >= next_bit, "two fields overlap");
        assert!(field.first_bit() <= next_bit, "bits without a field");
        next_bit = field.first_bit() + field.width;
        index += 1;
    }
    assert!(next_bit == bytes * 8, "the last field does not end with the header");
}

/// Why bytes are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The buffer ends before the header.
    Truncated {
        /// Name of the header.
        header: &'static str,
        /// Bytes available.
        found_bytes: usize,
        /// Bytes needed at least.
        needed_bytes: usize,
    },
    /// A field has a value that is not allowed here.
    Field {
        /// Name of the header.
        header: &'static str,
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        found: u64,
        /// Description of the allowed values.
        allowed: &'static str,
    },
    /// A length contradicts the surrounding headers or a limit.
    Length {
        /// Name of the header.
        header: &'static str,
        /// Name of the field, or of the measured length.
        field: &'static str,
        /// Length found, in bytes.
        found_bytes: usize,
        /// Smallest allowed length, in bytes.
        least_bytes: usize,
        /// Largest allowed length, in bytes.
        most_bytes: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { header, found_bytes, needed_bytes } => {
                write!(f, "{header}: {found_bytes} bytes are there, at least {needed_bytes} are needed")
            }
            Self::Field { header, field, found, allowed } => {
                write!(f, "{header} {field}: found {found:#x}, allowed is {allowed}")
            }
            Self::Length { header, field, found_bytes, least_bytes, most_bytes } => {
                write!(
                    f,
                    "{header} {field}: found {found_bytes} bytes, allowed are {least_bytes} to {most_bytes} bytes"
                )
            }
        }
    }
}

impl core::error::Error for Error {}

/// Rust type of the value of a field.
pub trait Value: Copy {
    /// Returns the value of a field's bits.
    fn from_bits(bits: u128) -> Self;
    /// Returns the bits of the value, right-aligned.
    fn into_bits(self) -> u128;
}

macro_rules! integer_values {
    ($($integer:ty),*) => {$(
        impl Value for $integer {
            fn from_bits(bits: u128) -> Self { bits as Self }
            fn into_bits(self) -> u128 { self as u128 }
        }
    )*};
}
integer_values!(u8, u16, u32, u64, u128);

impl Value for bool {
    fn from_bits(bits: u128) -> Self {
        bits != 0
    }
    fn into_bits(self) -> u128 {
        u128::from(self)
    }
}

impl Value for Psn {
    fn from_bits(bits: u128) -> Self {
        Self::wrapping(bits as u32)
    }
    fn into_bits(self) -> u128 {
        u128::from(self.value())
    }
}

impl Value for Ipv4Addr {
    fn from_bits(bits: u128) -> Self {
        Ipv4Addr::from_bits(bits as u32)
    }
    fn into_bits(self) -> u128 {
        u128::from(self.to_bits())
    }
}

impl Value for Ipv6Addr {
    fn from_bits(bits: u128) -> Self {
        Ipv6Addr::from_bits(bits)
    }
    fn into_bits(self) -> u128 {
        self.to_bits()
    }
}

/// Declares a header from its table.
///
/// `header! { module, View, "Name", N bytes; fields }` makes a module of constants (one [`Field`] each,
/// `FIELDS`, `BYTES` and `HEADER`, with the proof that they cover the header) and a view with a checked
/// constructor, a getter and a setter for each field. With `View => Repr` it makes the representation as
/// well, a struct of all fields that `parse` reads and `emit` writes: for headers of which no field is
/// computed from its surroundings. A row is `NAME getter setter: type = byte, bit, width, "unit",
/// "specification";` below a doc comment that gives the meaning.
macro_rules! header {
    (
        $(#[doc = $about:literal])+
        $module:ident, $view:ident => $repr:ident, $title:literal, $bytes:literal bytes;
        $($(#[doc = $meaning:literal])+ $name:ident $get:ident $set:ident: $value:ty = $($place:literal),+;)+
    ) => {
        $crate::wire::header::header! {
            $(#[doc = $about])+
            $module, $view, $title, $bytes bytes;
            $($(#[doc = $meaning])+ $name $get $set: $value = $($place),+;)+
        }

        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $repr {
            $($(#[doc = $meaning])+ pub $get: $value,)+
        }

        impl $repr {
            /// Parses all fields.
            pub fn parse<T: AsRef<[u8]>>(packet: &$view<T>) -> Self {
                Self { $($get: packet.$get(),)+ }
            }

            /// Returns the number of bytes that [`emit`](Self::emit) writes.
            pub const fn buffer_len(&self) -> usize {
                $bytes
            }

            /// Writes all fields. Values are truncated to the widths of their fields.
            pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut $view<T>) {
                $(packet.$set(self.$get);)+
            }
        }
    };
    (
        $(#[doc = $about:literal])+
        $module:ident, $view:ident, $title:literal, $bytes:literal bytes;
        $(
            $(#[doc = $meaning:literal])+
            $name:ident $get:ident $set:ident: $value:ty
                = $byte:literal, $bit:literal, $width:literal, $unit:literal, $section:literal;
        )+
    ) => {
        #[doc = concat!("Fields of the ", $title, " header.")]
        pub mod $module {
            use $crate::wire::header::{Field, Header, prove_cover};

            /// Size of the header, in bytes.
            pub const BYTES: usize = $bytes;

            $(
                $(#[doc = $meaning])+
                pub const $name: Field = Field {
                    name: stringify!($get),
                    byte: $byte,
                    bit: $bit,
                    width: $width,
                    unit: $unit,
                    meaning: concat!($($meaning),+).trim_ascii(),
                    section: $section,
                };
            )+

            /// All fields in wire order.
            pub const FIELDS: &[Field] = &[$($name),+];

            /// The header: name, size and fields.
            pub const HEADER: Header = Header { name: $title, bytes: BYTES, fields: FIELDS };

            const _: () = prove_cover(FIELDS, BYTES);
        }

        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $view<T: AsRef<[u8]>> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $view<T> {
            /// Wraps a buffer without checking its length. Accessors panic if it is too short.
            pub const fn new_unchecked(buffer: T) -> Self {
                Self { buffer }
            }

            /// Wraps a buffer after checking that it holds the whole header. Accessors then never panic.
            ///
            /// # Errors
            ///
            /// [`Error::Truncated`](crate::wire::Error::Truncated) if the buffer is shorter than the header.
            pub fn new_checked(buffer: T) -> Result<Self, $crate::wire::Error> {
                let packet = Self { buffer };
                packet.check_len()?;
                Ok(packet)
            }

            /// Checks that the buffer holds the whole header.
            ///
            /// # Errors
            ///
            /// [`Error::Truncated`](crate::wire::Error::Truncated) if the buffer is shorter than the header.
            pub fn check_len(&self) -> Result<(), $crate::wire::Error> {
                let found_bytes = self.buffer.as_ref().len();
                if found_bytes < $module::BYTES {
                    let needed_bytes = $module::BYTES;
                    return Err($crate::wire::Error::Truncated { header: $title, found_bytes, needed_bytes });
                }
                Ok(())
            }

            /// Returns the buffer.
            pub fn into_inner(self) -> T {
                self.buffer
            }

            $(
                $(#[doc = $meaning])+
                pub fn $get(&self) -> $value {
                    $crate::wire::header::Value::from_bits($module::$name.get(self.buffer.as_ref()))
                }
            )+
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $view<T> {
            $(
                #[doc = concat!("Sets `", stringify!($get), "`.")]
                pub fn $set(&mut self, value: $value) {
                    let bits = $crate::wire::header::Value::into_bits(value);
                    $module::$name.set(self.buffer.as_mut(), bits);
                }
            )+
        }
    };
}
pub(super) use header;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn field(byte: usize, bit: usize, width: usize) -> Field {
        Field { name: "x", byte, bit, width, unit: "", meaning: "", section: "" }
    }

    #[test]
    fn a_field_runs_through_low_bits_into_following_bytes() {
        let header = [0x6A, 0xBC, 0xDE, 0xF0];
        assert_eq!(field(0, 7, 4).get(&header), 0x6);
        assert_eq!(field(0, 3, 8).get(&header), 0xAB);
        assert_eq!(field(1, 3, 20).get(&header), 0xCDEF0);
        assert_eq!(field(2, 0, 1).get(&header), 0);
        assert_eq!(field(2, 1, 1).get(&header), 1);
    }

    #[test]
    #[should_panic(expected = "two fields overlap")]
    fn an_overlap_is_refused() {
        prove_cover(&[field(0, 7, 4), field(0, 4, 5)], 1);
    }

    #[test]
    #[should_panic(expected = "bits without a field")]
    fn a_gap_is_refused() {
        prove_cover(&[field(0, 7, 4), field(0, 2, 3)], 1);
    }

    #[test]
    #[should_panic(expected = "the last field does not end with the header")]
    fn a_short_table_is_refused() {
        prove_cover(&[field(0, 7, 8)], 2);
    }

    proptest! {
        #[test]
        fn a_field_reads_what_was_written_and_leaves_its_neighbours_alone(
            mut header in any::<[u8; 24]>(), byte in 0..8usize, bit in 0..8usize, width in 1..=120usize,
            value: u128,
        ) {
            let field = field(byte, bit, width);
            let before = header;
            field.set(&mut header, value);
            prop_assert_eq!(field.get(&header), value & field.ones());
            field.set(&mut header, field.get(&before));
            prop_assert_eq!(header, before);
        }
    }
}
