//! Tables of records and fields, and the macros `record!` and `values!` that declare them.
//!
//! A record is a named run of bits: a register, a doorbell, a WQE, a CQE, an admin command, a context. It is declared once, with
//! `record!`. The value type with its `parse` and `emit`, the register manual, the C header, and the tests that compare the
//! hardware's structs with the table are made from that declaration.
//!
//! # Bit order
//!
//! Bit 0 is the least significant bit of byte 0. Bit *n* of a record is bit *n mod 8* of byte *n / 8*, so a field that
//! covers whole bytes is a little-endian integer, and a record read as one wide little-endian integer has its fields
//! at the offsets of the table. Wire headers are big-endian and are not described here.
//!
//! # What the compiler proves
//!
//! [`Record::prove`] runs in a constant for every record: fields are in ascending order, no two overlap, every bit belongs to a
//! field or is listed as reserved, every reset value and every allowed value fits its field, and names are unique. A record that
//! breaks a rule does not compile.

use core::fmt;

/// The one part that changes a field while the card runs (design decision 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// No part: the value is the same in every card.
    Fixed,
    /// No part: the value follows from the configuration that the card was generated with.
    Generated,
    /// The shell around the card: the board, which knows its port and its addresses.
    Shell,
    /// Software on the host.
    Driver,
    /// The card's slow path (`rnic-control`): registers, counters, admin queue, states of queue pairs.
    Control,
    /// The card's completion part (`rnic-complete`): CQEs, EQEs, interrupts.
    Complete,
}

impl Writer {
    /// Returns the name that the manual prints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Generated => "generated",
            Self::Shell => "shell",
            Self::Driver => "driver",
            Self::Control => "control",
            Self::Complete => "complete",
        }
    }
}

/// One named value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Name in `snake_case`.
    pub name: &'static str,
    /// Number in the field.
    pub value: u64,
    /// Meaning, as full sentences.
    pub meaning: &'static str,
}

/// The list of all values that a field may hold: an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueTable {
    /// Name of the enumeration in `CamelCase`.
    pub name: &'static str,
    /// Meaning of the enumeration, as full sentences.
    pub meaning: &'static str,
    /// Citation of the rule: `protocol 3.4`, `design 3.2` or `design decision 9`.
    pub section: &'static str,
    /// The values, in ascending order.
    pub values: &'static [Value],
}

impl ValueTable {
    /// Returns the named value of a number, or `None` if the list has none.
    pub fn find(&self, value: u64) -> Option<&'static Value> {
        self.values.iter().find(|known| known.value == value)
    }

    /// Proves that the values are in ascending order.
    ///
    /// # Panics
    ///
    /// If they are not; in a constant that is a compile error.
    pub const fn prove(&self) {
        let mut index = 1;
        while index < self.values.len() {
            assert!(self.values[index - 1].value < self.values[index].value, "values must rise");
            index += 1;
        }
    }
}

/// One field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the record that the field belongs to.
    pub record: &'static str,
    /// Name in `snake_case`.
    pub name: &'static str,
    /// Lowest bit, counted from bit 0 of the record.
    pub offset: u32,
    /// Width in bits.
    pub width: u32,
    /// Meaning, as full sentences.
    pub meaning: &'static str,
    /// Unit of the number (`bytes`, `slots`, ...), or an empty string.
    pub unit: &'static str,
    /// Part that writes the field.
    pub writer: Writer,
    /// Value after reset of the card, or in a newly created object.
    pub reset: u64,
    /// Citation of the rule: `protocol 3.4`, `design 3.2` or `design decision 9`.
    pub section: &'static str,
    /// Smallest and largest allowed number, if the range is narrower than the width.
    pub range: Option<(u64, u64)>,
    /// The allowed numbers with their names, if the field is an enumeration.
    pub values: Option<&'static ValueTable>,
}

impl Field {
    /// Returns the first bit after the field.
    pub const fn end(&self) -> u32 {
        self.offset + self.width
    }

    /// Returns the largest number that the width can hold; all ones for fields of 64 bits and more.
    pub const fn max(&self) -> u64 {
        if self.width >= 64 { u64::MAX } else { (1 << self.width) - 1 }
    }

    /// Returns the byte offset and the width in bits of the smallest aligned access unit (8, 16, 32 or 64 bits) that contains
    /// the whole field. `None` if the field crosses a 64-bit boundary.
    pub const fn access_unit(&self) -> Option<(u32, u32)> {
        let mut bits = 8;
        while bits <= 64 {
            if self.offset / bits == (self.end() - 1) / bits {
                return Some((self.offset / bits * bits / 8, bits));
            }
            bits *= 2;
        }
        None
    }

    /// Reads the field, if it is at most 64 bits wide, from the bytes of its record.
    ///
    /// # Panics
    ///
    /// If the field is wider than 64 bits, or `bytes` is shorter than the record.
    #[inline]
    pub fn get(&self, bytes: &[u8]) -> u64 {
        assert!(self.width <= 64, "a field of {} bits is read with get_wide or as bytes", self.width);
        self.get_wide(bytes) as u64
    }

    /// Reads the field, if it is at most 128 bits wide, from the bytes of its record.
    ///
    /// # Panics
    ///
    /// If the field is wider than 128 bits, or `bytes` is shorter than the record.
    #[inline]
    pub fn get_wide(&self, bytes: &[u8]) -> u128 {
        assert!(self.width <= 128, "a field of {} bits is read as bytes", self.width);
        let first = (self.offset / 8) as usize;
        let last = ((self.end() - 1) / 8) as usize;
        let shift = self.offset % 8;
        // A field of 128 bits that begins inside a byte covers 17 bytes; the lowest byte is shifted in last.
        let mut value: u128 = 0;
        for index in (first + 1..=last).rev() {
            value = value << 8 | u128::from(bytes[index]);
        }
        value = value << (8 - shift) | u128::from(bytes[first] >> shift);
        if self.width < 128 { value & ((1 << self.width) - 1) } else { value }
    }

    /// Writes the field, if it is at most 64 bits wide. Bits of other fields are preserved.
    ///
    /// # Errors
    ///
    /// If the number does not fit, or is outside the field's range or list of values; nothing is written then.
    ///
    /// # Panics
    ///
    /// If `bytes` is shorter than the record.
    #[inline]
    pub fn set(&self, bytes: &mut [u8], value: u64) -> Result<(), FieldError> {
        self.check(value)?;
        self.put(bytes, u128::from(value));
        Ok(())
    }

    /// Writes the field, if it is at most 128 bits wide. Bits of other fields are preserved.
    ///
    /// # Errors
    ///
    /// If the number does not fit; nothing is written then.
    ///
    /// # Panics
    ///
    /// If the field is wider than 128 bits, or `bytes` is shorter than the record.
    pub fn set_wide(&self, bytes: &mut [u8], value: u128) -> Result<(), FieldError> {
        if self.width < 128 && value >> self.width != 0 {
            // The error carries 64 bits; a larger number is reported as the largest.
            let shown = u64::try_from(value).unwrap_or(u64::MAX);
            return Err(self.refuse(shown, Allowed::Range { min: 0, max: self.max() }));
        }
        self.put(bytes, value);
        Ok(())
    }

    /// Checks a number against the field's width, range and list of values.
    ///
    /// # Errors
    ///
    /// An error that names the field, the number and what is allowed.
    #[inline]
    pub fn check(&self, value: u64) -> Result<(), FieldError> {
        if let Some(table) = self.values
            && table.find(value).is_none()
        {
            return Err(self.refuse(value, Allowed::OneOf(table)));
        }
        let (min, max) = self.range.unwrap_or((0, self.max()));
        if value < min || value > max {
            return Err(self.refuse(value, Allowed::Range { min, max }));
        }
        Ok(())
    }

    const fn refuse(&self, value: u64, allowed: Allowed) -> FieldError {
        FieldError { record: self.record, field: self.name, value, allowed }
    }

    #[inline]
    fn put(&self, bytes: &mut [u8], value: u128) {
        assert!(self.width <= 128, "a field of {} bits is written as bytes", self.width);
        let mut bit = self.offset;
        while bit < self.end() {
            let in_byte = bit % 8;
            let taken = (8 - in_byte).min(self.end() - bit);
            let mask = (((1u16 << taken) - 1) as u8) << in_byte;
            let part = ((value >> (bit - self.offset)) as u8) << in_byte;
            let byte = &mut bytes[(bit / 8) as usize];
            *byte = (*byte & !mask) | (part & mask);
            bit += taken;
        }
    }
}

/// The values that a refused field accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Any number from `min` to `max`, both included.
    Range {
        /// Smallest allowed number.
        min: u64,
        /// Largest allowed number.
        max: u64,
    },
    /// One of the values of an enumeration.
    OneOf(&'static ValueTable),
    /// Zero only, because the bits are reserved.
    Zero,
    /// A buffer of at least this many bytes.
    BytesAtLeast(u64),
}

/// A field with a value that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Name of the record.
    pub record: &'static str,
    /// Name of the field, or `reserved`, or `length` for a buffer that is too short.
    pub field: &'static str,
    /// The value found.
    pub value: u64,
    /// The values that are allowed.
    pub allowed: Allowed,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} is {:#x}; ", self.record, self.field, self.value)?;
        match self.allowed {
            Allowed::Range { min, max } => write!(f, "allowed are {min:#x} to {max:#x}"),
            Allowed::OneOf(table) => {
                write!(f, "allowed are")?;
                for (index, allowed) in table.values.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma} {:#x} ({})", allowed.value, allowed.name)?;
                }
                Ok(())
            }
            Allowed::Zero => write!(f, "reserved bits are zero"),
            Allowed::BytesAtLeast(bytes) => write!(f, "needed are at least {bytes} bytes"),
        }
    }
}

impl core::error::Error for FieldError {}

/// A record: its size, its fields in ascending order, and its reserved bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Name in `CamelCase`.
    pub name: &'static str,
    /// Meaning, as full sentences.
    pub meaning: &'static str,
    /// Citation of the rule: `protocol 3.4`, `design 3.2` or `design decision 9`.
    pub section: &'static str,
    /// Size in bits, reserved bits included.
    pub bits: u32,
    /// The fields, in ascending order of their bits.
    pub fields: &'static [Field],
    /// Reserved ranges as (first bit, first bit after). They are written as zero; a reader of host memory refuses other values,
    /// so that a later version can give them a meaning.
    pub reserved: &'static [(u32, u32)],
}

/// A run of bits of a record, as [`Record::spans`] yields it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// A field.
    Field(&'static Field),
    /// Reserved bits: the first bit, and the first bit after.
    Reserved(u32, u32),
}

impl Record {
    /// Returns the size in memory, in bytes.
    pub const fn bytes(&self) -> usize {
        self.bits.div_ceil(8) as usize
    }

    /// Returns the field of a name.
    ///
    /// # Panics
    ///
    /// If the record has no field of this name; in a constant that is a compile error.
    pub const fn field(&self, name: &str) -> &'static Field {
        let mut index = 0;
        while index < self.fields.len() {
            if same(self.fields[index].name, name) {
                return &self.fields[index];
            }
            index += 1;
        }
        panic!("the record has no field of this name")
    }

    /// Returns the part that writes the record: the writer of its first field, or the driver if it has no field.
    pub const fn writer(&self) -> Writer {
        if let [first, ..] = self.fields { first.writer } else { Writer::Driver }
    }

    /// Iterates over fields and reserved bits from bit 0 upward, without a gap.
    pub fn spans(&self) -> impl Iterator<Item = Span> + use<> {
        let record = *self;
        let mut bit = 0;
        core::iter::from_fn(move || {
            if bit >= record.bits {
                return None;
            }
            let span = match record.fields.iter().find(|field| field.offset == bit) {
                Some(field) => Span::Field(field),
                None => {
                    let &(first, end) = record.reserved.iter().find(|range| range.0 == bit)?;
                    Span::Reserved(first, end)
                }
            };
            bit = match span {
                Span::Field(field) => field.end(),
                Span::Reserved(_, end) => end,
            };
            Some(span)
        })
    }

    /// Checks that `bytes` is long enough and that all reserved bits are zero.
    ///
    /// # Errors
    ///
    /// If `bytes` is too short, or a reserved bit is one; the error names the first such range.
    #[inline]
    pub fn check_reserved(&self, bytes: &[u8]) -> Result<(), FieldError> {
        self.check_length(bytes.len())?;
        for &(first, end) in self.reserved {
            let mut bit = first;
            while bit < end {
                let width = (end - bit).min(64);
                let piece = Field { offset: bit, width, name: "reserved", record: self.name, ..BLANK };
                let value = piece.get(bytes);
                if value != 0 {
                    return Err(piece.refuse(value, Allowed::Zero));
                }
                bit += width;
            }
        }
        Ok(())
    }

    /// Writes the reset values of all fields.
    ///
    /// # Panics
    ///
    /// If `bytes` is shorter than the record.
    pub fn reset(&self, bytes: &mut [u8]) {
        bytes[..self.bytes()].fill(0);
        for field in self.fields.iter().filter(|field| field.reset != 0) {
            field.put(bytes, u128::from(field.reset));
        }
    }

    /// Checks that a buffer of `bytes` bytes holds the record.
    ///
    /// # Errors
    ///
    /// If it is too short.
    #[inline]
    pub fn check_length(&self, bytes: usize) -> Result<(), FieldError> {
        if bytes < self.bytes() {
            return Err(FieldError {
                record: self.name,
                field: "length",
                value: bytes as u64,
                allowed: Allowed::BytesAtLeast(self.bytes() as u64),
            });
        }
        Ok(())
    }

    /// Proves that the table describes every bit of the record exactly once, in ascending order, with unique names and with
    /// reset values and ranges that fit.
    ///
    /// # Panics
    ///
    /// If it does not; in a constant that is a compile error.
    pub const fn prove(&self) {
        let mut bit = 0;
        let mut field = 0;
        let mut hole = 0;
        while bit < self.bits {
            if field < self.fields.len() && self.fields[field].offset == bit {
                let found = &self.fields[field];
                assert!(found.width > 0, "a field without bits");
                assert!(found.reset <= found.max(), "a reset value does not fit its field");
                if let Some((min, max)) = found.range {
                    assert!(min <= max && max <= found.max(), "a range does not fit its field");
                    assert!(min <= found.reset && found.reset <= max, "a reset value is not in its range");
                }
                if let Some(table) = found.values {
                    let mut value = 0;
                    let mut listed = false;
                    while value < table.values.len() {
                        assert!(table.values[value].value <= found.max(), "a value does not fit its field");
                        listed |= table.values[value].value == found.reset;
                        value += 1;
                    }
                    assert!(listed, "a reset value is not in its list");
                }
                let mut other = 0;
                while other < field {
                    assert!(!same(self.fields[other].name, found.name), "two fields of one name");
                    other += 1;
                }
                bit = found.end();
                field += 1;
            } else if hole < self.reserved.len() && self.reserved[hole].0 == bit {
                assert!(self.reserved[hole].1 > bit, "reserved bits that end before they begin");
                bit = self.reserved[hole].1;
                hole += 1;
            } else {
                panic!("a gap or an overlap between fields");
            }
        }
        assert!(bit == self.bits, "a field exceeds its record");
        assert!(field == self.fields.len() && hole == self.reserved.len(), "fields do not rise");
    }
}

/// Base of a functional update that makes a field.
const BLANK: Field = Field {
    record: "",
    name: "",
    offset: 0,
    width: 1,
    meaning: "",
    unit: "",
    writer: Writer::Fixed,
    reset: 0,
    section: "",
    range: None,
    values: None,
};

pub(crate) const fn same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// A Rust type of a field's value.
pub trait FieldValue: Copy + Sized {
    /// The allowed values, if the type is an enumeration.
    const VALUES: Option<&'static ValueTable> = None;

    /// Reads the field from the bytes of its record.
    ///
    /// # Errors
    ///
    /// If the bits are no value of this type, or are outside the field's range.
    fn read(field: &Field, bytes: &[u8]) -> Result<Self, FieldError>;

    /// Writes the field to the bytes of its record.
    ///
    /// # Errors
    ///
    /// If the value exceeds the field's width or range.
    fn write(self, field: &Field, bytes: &mut [u8]) -> Result<(), FieldError>;
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl FieldValue for $int {
            #[inline]
            fn read(field: &Field, bytes: &[u8]) -> Result<Self, FieldError> {
                let value = field.get(bytes);
                field.check(value)?;
                Self::try_from(value).map_err(|_| {
                    field.refuse(value, Allowed::Range { min: 0, max: u64::from(Self::MAX) })
                })
            }

            #[inline]
            fn write(self, field: &Field, bytes: &mut [u8]) -> Result<(), FieldError> {
                field.set(bytes, u64::from(self))
            }
        }
    )*};
}
integers!(u8, u16, u32, u64);

impl FieldValue for bool {
    #[inline]
    fn read(field: &Field, bytes: &[u8]) -> Result<Self, FieldError> {
        let value = field.get(bytes);
        field.check(value)?;
        Ok(value != 0)
    }

    #[inline]
    fn write(self, field: &Field, bytes: &mut [u8]) -> Result<(), FieldError> {
        field.set(bytes, u64::from(self))
    }
}

impl FieldValue for u128 {
    #[inline]
    fn read(field: &Field, bytes: &[u8]) -> Result<Self, FieldError> {
        Ok(field.get_wide(bytes))
    }

    #[inline]
    fn write(self, field: &Field, bytes: &mut [u8]) -> Result<(), FieldError> {
        field.set_wide(bytes, self)
    }
}

/// Bytes that keep their order: immediate data, addresses in wire order, inline payload.
impl<const N: usize> FieldValue for [u8; N] {
    #[inline]
    fn read(field: &Field, bytes: &[u8]) -> Result<Self, FieldError> {
        assert!(
            field.offset.is_multiple_of(8) && field.width as usize == N * 8,
            "byte fields cover whole bytes"
        );
        let first = (field.offset / 8) as usize;
        let mut value = [0; N];
        value.copy_from_slice(&bytes[first..first + N]);
        Ok(value)
    }

    #[inline]
    fn write(self, field: &Field, bytes: &mut [u8]) -> Result<(), FieldError> {
        assert!(
            field.offset.is_multiple_of(8) && field.width as usize == N * 8,
            "byte fields cover whole bytes"
        );
        let first = (field.offset / 8) as usize;
        bytes[first..first + N].copy_from_slice(&self);
        Ok(())
    }
}

/// Declares an enumeration of field values, with its table.
macro_rules! values {
    (
        $(#[doc = $doc:literal])+
        pub enum $name:ident, $section:literal {
            $( $(#[doc = $value_doc:literal])+ $variant:ident = $number:literal, $text:literal; )+
        }
    ) => {
        $(#[doc = $doc])+
        #[doc = concat!("\n\nSource: ", $section, ".")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $( $(#[doc = $value_doc])+ $variant = $number, )+
        }

        impl $name {
            /// Table of all values with their names.
            pub const TABLE: $crate::field::ValueTable = $crate::field::ValueTable {
                name: stringify!($name),
                meaning: concat!($($doc),+).trim_ascii(),
                section: $section,
                values: &[ $( $crate::field::Value {
                    name: $text,
                    value: $number,
                    meaning: concat!($($value_doc),+).trim_ascii(),
                } ),+ ],
            };

            /// Every variant, in ascending order.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),+ ];

            /// Returns the variant of a number, or `None` if there is none.
            pub const fn from_number(number: u64) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$variant), )+
                    _ => None,
                }
            }

            /// Returns the number in the field.
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// Returns the name in `snake_case`.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $text, )+ }
            }
        }

        const _: () = $name::TABLE.prove();

        impl $crate::field::FieldValue for $name {
            const VALUES: Option<&'static $crate::field::ValueTable> = Some(&$name::TABLE);

            #[inline]
            fn read(field: &$crate::field::Field, bytes: &[u8]) -> Result<Self, $crate::field::FieldError> {
                let value = field.get(bytes);
                Self::from_number(value).ok_or($crate::field::FieldError {
                    record: field.record,
                    field: field.name,
                    value,
                    allowed: $crate::field::Allowed::OneOf(&Self::TABLE),
                })
            }

            #[inline]
            fn write(self, field: &$crate::field::Field, bytes: &mut [u8]) -> Result<(), $crate::field::FieldError> {
                field.set(bytes, u64::from(self.number()))
            }
        }
    };
}
pub(crate) use values;

/// Declares a record: its table, the compile-time proof, and a value type with `parse` and `emit`.
///
/// ```text
/// record! {
///     /// Meaning of the record.
///     pub struct Name: 64 bits by Driver, "protocol 1.3" {
///         /// Meaning of the field.
///         number: u32 = 0..24, "protocol 1.3";
///         /// Options follow in this order: unit, writer, reset value, legal range.
///         length: u32 = 32..64, "protocol 2.1", unit "bytes", by Control, reset 7, allowed 0..=9;
///     }
///     reserved { 24..32 }
/// }
/// ```
macro_rules! record {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident: $bits:literal bits by $writer:ident, $section:literal {
            $(
                $(#[doc = $field_doc:literal])+
                $field:ident: $type:ty = $first:literal .. $end:literal, $field_section:literal
                    $(, unit $unit:literal)? $(, by $field_writer:ident)? $(, reset $reset:literal)?
                    $(, allowed $min:literal ..= $max:literal)?;
            )*
        }
        $(reserved { $($hole:literal .. $hole_end:literal),+ $(,)? })?
    ) => {
        $(#[doc = $doc])+
        #[doc = concat!("\n\nSource: ", $section, ".")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[doc = $field_doc])+ pub $field: $type, )*
        }

        impl $name {
            /// Table of the record's fields.
            pub const RECORD: $crate::field::Record = $crate::field::Record {
                name: stringify!($name),
                meaning: concat!($($doc),+).trim_ascii(),
                section: $section,
                bits: $bits,
                fields: &[ $( $crate::field::Field {
                    record: stringify!($name),
                    name: stringify!($field),
                    offset: $first,
                    width: $end - $first,
                    meaning: concat!($($field_doc),+).trim_ascii(),
                    unit: $crate::field::option!($($unit)?; ""),
                    writer: $crate::field::option!(
                        $($crate::field::Writer::$field_writer)?; $crate::field::Writer::$writer
                    ),
                    reset: $crate::field::option!($($reset)?; 0),
                    section: $field_section,
                    range: $crate::field::option!($(Some(($min, $max)))?; None),
                    values: <$type as $crate::field::FieldValue>::VALUES,
                } ),* ],
                reserved: &[ $($( ($hole, $hole_end) ),+)? ],
            };

            /// Size in memory, in bytes.
            pub const BYTES: usize = Self::RECORD.bytes();

            /// Returns the record with every field at its reset value.
            pub fn at_reset() -> Self {
                let mut bytes = [0; Self::BYTES];
                Self::RECORD.reset(&mut bytes);
                Self::parse(&bytes).expect("the proof of the record has checked every reset value")
            }

            /// Parses the record at the start of `bytes`.
            ///
            /// # Errors
            ///
            /// If `bytes` is too short, a reserved bit is not zero, or a field has a value that is not allowed.
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::field::FieldError> {
                Self::RECORD.check_reserved(bytes)?;
                Ok(Self {
                    $( $field: $crate::field::FieldValue::read(
                        const { Self::RECORD.field(stringify!($field)) }, bytes,
                    )?, )*
                })
            }

            /// Writes the whole record to the start of `bytes`, reserved bits as zero.
            ///
            /// # Errors
            ///
            /// If `bytes` is too short, or a value is not allowed in its field; the content of `bytes` is then undefined.
            pub fn emit(&self, bytes: &mut [u8]) -> Result<(), $crate::field::FieldError> {
                Self::RECORD.check_length(bytes.len())?;
                bytes[..Self::BYTES].fill(0);
                $( $crate::field::FieldValue::write(
                    self.$field, const { Self::RECORD.field(stringify!($field)) }, bytes,
                )?; )*
                Ok(())
            }

            /// Returns the record as bytes.
            ///
            /// # Errors
            ///
            /// If a value is not allowed in its field.
            pub fn to_bytes(self) -> Result<[u8; Self::BYTES], $crate::field::FieldError> {
                let mut bytes = [0; Self::BYTES];
                self.emit(&mut bytes)?;
                Ok(bytes)
            }
        }

        const _: () = $name::RECORD.prove();
    };
}
pub(crate) use record;

/// Expands to the value of an option of [`record!`], or to its default if the option is absent.
macro_rules! option {
    (; $default:expr) => {
        $default
    };
    ($given:expr; $default:expr) => {
        $given
    };
}
pub(crate) use option;

#[cfg(test)]
#[expect(unreachable_pub, dead_code, reason = "the macros declare more public items than the tests use")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::ToString;

    values! {
        /// A colour.
        pub enum Colour, "none" {
            /// Red.
            Red = 0, "red";
            /// Blue.
            Blue = 2, "blue";
        }
    }

    record! {
        /// A record with every kind of field.
        pub struct Sample: 192 bits by Driver, "none" {
            /// One bit.
            flag: bool = 0..1, "none";
            /// Crosses a byte.
            middle: u16 = 5..17, "none", unit "cycles", by Control, reset 9;
            /// A list.
            colour: Colour = 17..20, "none";
            /// A range.
            level: u8 = 20..24, "none", allowed 0..=10;
            /// Wide, and not at a byte.
            wide: u128 = 27..155, "none";
            /// Bytes.
            bytes: [u8; 4] = 160..192, "none";
        }
        reserved { 1..5, 24..27, 155..160 }
    }

    #[test]
    fn a_record_is_written_as_its_table_says() {
        let sample = Sample {
            flag: true,
            middle: 0xabc,
            colour: Colour::Blue,
            level: 10,
            wide: u128::MAX,
            bytes: *b"abcd",
        };
        let bytes = sample.to_bytes().unwrap();
        // middle at bit 5: 0xabc << 5 = 0x15780; colour at 17: 2 << 17 = 0x40000; level at 20: 10 << 20 = 0xa00000.
        assert_eq!(bytes[..3], [0x81, 0x57, 0xa5]);
        assert_eq!(bytes[3], 0xf8);
        assert_eq!(bytes[19], 0x07);
        assert_eq!(bytes[20..], *b"abcd");
        assert_eq!(Sample::parse(&bytes), Ok(sample));
    }

    #[test]
    fn reset_values_come_from_the_table() {
        let sample = Sample::at_reset();
        assert_eq!((sample.middle, sample.colour, sample.flag), (9, Colour::Red, false));
    }

    #[test]
    fn a_range_is_refused_on_its_far_side_only() {
        let mut sample = Sample { level: 10, ..Sample::at_reset() };
        assert!(sample.to_bytes().is_ok());
        sample.level = 11;
        assert_eq!(sample.to_bytes().unwrap_err().to_string(), "Sample.level is 0xb; allowed are 0x0 to 0xa");
    }

    #[test]
    fn a_number_wider_than_its_field_is_refused() {
        let sample = Sample { middle: 0x1000, ..Sample::at_reset() };
        assert_eq!(
            sample.to_bytes().unwrap_err().to_string(),
            "Sample.middle is 0x1000; allowed are 0x0 to 0xfff"
        );
    }

    #[test]
    fn a_value_outside_the_list_is_refused() {
        let mut bytes = Sample::at_reset().to_bytes().unwrap();
        bytes[2] |= 1 << 1;
        let error = Sample::parse(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "Sample.colour is 0x1; allowed are 0x0 (red), 0x2 (blue)");
    }

    #[test]
    fn a_reserved_bit_is_refused() {
        let mut bytes = Sample::at_reset().to_bytes().unwrap();
        bytes[19] |= 1 << 3;
        let error = Sample::parse(&bytes).unwrap_err();
        assert_eq!((error.field, error.value, error.allowed), ("reserved", 1, Allowed::Zero));
    }

    #[test]
    fn short_memory_is_refused() {
        let bytes = Sample::at_reset().to_bytes().unwrap();
        assert!(Sample::parse(&bytes).is_ok());
        let error = Sample::parse(&bytes[..23]).unwrap_err();
        assert_eq!(error.to_string(), "Sample.length is 0x17; needed are at least 24 bytes");
        assert!(Sample::at_reset().emit(&mut [0; 23]).is_err());
    }

    #[test]
    fn spans_walk_over_every_bit() {
        let mut bit = 0;
        for span in Sample::RECORD.spans() {
            let (first, end) = match span {
                Span::Field(field) => (field.offset, field.end()),
                Span::Reserved(first, end) => (first, end),
            };
            assert_eq!(first, bit);
            bit = end;
        }
        assert_eq!(bit, 192);
    }

    #[test]
    fn access_units_are_the_smallest_that_hold_the_field() {
        let field = |offset, width| Field { offset, width, ..BLANK };
        assert_eq!(field(8, 8).access_unit(), Some((1, 8)));
        assert_eq!(field(4, 8).access_unit(), Some((0, 16)));
        assert_eq!(field(32, 24).access_unit(), Some((4, 32)));
        assert_eq!(field(64, 64).access_unit(), Some((8, 64)));
        assert_eq!(field(60, 8).access_unit(), None);
    }

    fn refuses(record: Record) -> bool {
        std::panic::catch_unwind(|| record.prove()).is_err()
    }

    #[test]
    fn the_proof_sees_gaps_overlaps_and_double_names() {
        const A: Field = Field { name: "a", offset: 0, width: 8, ..BLANK };
        const B: Field = Field { name: "b", offset: 8, width: 8, ..BLANK };
        const GOOD: &[Field] = &[A, B];
        const OVERLAP: &[Field] = &[A, Field { offset: 7, width: 9, ..B }];
        const GAP: &[Field] = &[A, Field { offset: 9, width: 7, ..B }];
        const TWICE: &[Field] = &[A, Field { name: "a", ..B }];
        const RESET: &[Field] = &[A, Field { reset: 256, ..B }];
        const FALLING: &[Field] = &[B, A];
        let record = Record { name: "r", meaning: "", section: "", bits: 16, fields: GOOD, reserved: &[] };
        assert!(!refuses(record));
        for fields in [OVERLAP, GAP, TWICE, RESET, FALLING] {
            assert!(refuses(Record { fields, ..record }), "{}", format!("{fields:?}"));
        }
        assert!(refuses(Record { bits: 24, ..record }), "uncovered bits at the end");
        assert!(!refuses(Record { bits: 24, reserved: &[(16, 24)], ..record }));
        assert!(refuses(Record { reserved: &[(8, 16)], ..record }), "reserved bits over a field");
    }

    proptest! {
        #[test]
        fn a_field_reads_back_and_leaves_its_neighbours_alone(
            offset in 0u32..100, width in 1u32..=128, value: u128, background: [u8; 32],
        ) {
            let field = Field { offset, width, ..BLANK };
            let value = if width < 128 { value & ((1 << width) - 1) } else { value };
            let mut bytes = background;
            field.set_wide(&mut bytes, value).unwrap();
            prop_assert_eq!(field.get_wide(&bytes), value);
            for bit in 0..256u32 {
                let of = |bytes: &[u8; 32]| bytes[bit as usize / 8] >> (bit % 8) & 1;
                if bit < offset || bit >= field.end() {
                    prop_assert_eq!(of(&bytes), of(&background));
                } else {
                    prop_assert_eq!(u128::from(of(&bytes)), value >> (bit - offset) & 1);
                }
            }
        }
    }
}
