//! The tables that every record is written in, and what can be done with them.
//!
//! A record is a run of bits with a name: a register, a doorbell, a queue entry, an admin command, a context. It is
//! written down once, with `record!`, and everything else follows from that table: the value type with its `parse`
//! and `emit`, the register manual, the C header, and the tests that hold the hardware's mirrors to it.
//!
//! # Bit order
//!
//! Bit 0 is the least significant bit of byte 0. Bit *n* of a record is bit *n mod 8* of byte *n / 8*, so a field that
//! covers whole bytes is a little-endian integer, and a record read as one wide little-endian integer has its fields
//! at the offsets of the table. Wire headers are big-endian and are not described here.
//!
//! # What the compiler proves
//!
//! [`Record::prove`] runs in a constant for every record: fields stand in rising order, none overlaps another, no
//! bit is without an owner (what is unused is listed as reserved), every reset value and every allowed value fits its
//! field, and no name occurs twice. A record that breaks this does not compile.

use core::fmt;

/// Who may change a field while the card runs. Every field has exactly one writer; all others send it events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Nobody: the value is the same in every card.
    Fixed,
    /// Nobody: the value follows from the configuration that the card was generated with.
    Generated,
    /// Software on the host.
    Driver,
    /// The card as a whole, towards software: the direction of queue entries that software only reads.
    Card,
    /// The admin queue's state machine, on behalf of a command.
    Admin,
    /// The owner of QP life states: commands, errors and drains all arrive there as events.
    Life,
    /// The doorbell pages.
    Doorbell,
    /// The scheduler of the requester.
    Schedule,
    /// The timer wheel.
    Timer,
    /// The requester's segmentation stage.
    Send,
    /// The requester's response stage.
    Acknowledge,
    /// The responder's admission stage.
    Receive,
    /// The responder's placement stage, which also executes atomics.
    Place,
    /// The responder's reply stage.
    Reply,
    /// The completion writer.
    Complete,
    /// The event writer.
    Event,
    /// The region table, on behalf of commands, binds and invalidations.
    Regions,
    /// The packet path: parse, ICRC, buffer, assemble.
    Packet,
    /// The host side of the card: reads, writes, interrupts.
    Host,
}

impl Writer {
    /// Names the writer as the manual prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Generated => "generated",
            Self::Driver => "driver",
            Self::Card => "card",
            Self::Admin => "admin",
            Self::Life => "life",
            Self::Doorbell => "doorbell",
            Self::Schedule => "schedule",
            Self::Timer => "timer",
            Self::Send => "send",
            Self::Acknowledge => "acknowledge",
            Self::Receive => "receive",
            Self::Place => "place",
            Self::Reply => "reply",
            Self::Complete => "complete",
            Self::Event => "event",
            Self::Regions => "regions",
            Self::Packet => "packet",
            Self::Host => "host",
        }
    }
}

/// One named value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Name in `snake_case`.
    pub name: &'static str,
    /// The number that stands in the field.
    pub value: u64,
    /// What it means.
    pub meaning: &'static str,
}

/// All values that a field can legally hold, where that is a short list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueTable {
    /// Name of the list in `CamelCase`.
    pub name: &'static str,
    /// What the list is about.
    pub meaning: &'static str,
    /// Where it comes from.
    pub section: &'static str,
    /// The values, in rising order.
    pub values: &'static [Value],
}

impl ValueTable {
    /// Finds the entry for a number.
    pub fn find(&self, value: u64) -> Option<&'static Value> {
        self.values.iter().find(|entry| entry.value == value)
    }

    /// Panics, at compile time, unless the values rise.
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
    /// Lowest bit.
    pub offset: u32,
    /// Number of bits.
    pub width: u32,
    /// What it means.
    pub meaning: &'static str,
    /// Unit of the number, or an empty string.
    pub unit: &'static str,
    /// Who changes it.
    pub writer: Writer,
    /// Value after reset, or at the creation of the object.
    pub reset: u64,
    /// The rule it follows: a section of the specification or of the protocol notes, or a design decision.
    pub section: &'static str,
    /// Smallest and largest legal number, where that is narrower than the width.
    pub range: Option<(u64, u64)>,
    /// The legal numbers with their names, where that is a list.
    pub values: Option<&'static ValueTable>,
}

impl Field {
    /// First bit beyond the field.
    pub const fn end(&self) -> u32 {
        self.offset + self.width
    }

    /// Largest number that the width can hold; all ones for fields of 64 bits and more.
    pub const fn max(&self) -> u64 {
        if self.width >= 64 { u64::MAX } else { (1 << self.width) - 1 }
    }

    /// Smallest access unit (8, 16, 32 or 64 bits), aligned to its own size, that contains the whole field, and the
    /// byte at which that unit stands. `None` if the field crosses a 64-bit boundary.
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
    pub fn get(&self, bytes: &[u8]) -> u64 {
        assert!(self.width <= 64, "a field of {} bits is read with get_wide or as bytes", self.width);
        self.get_wide(bytes) as u64
    }

    /// Reads the field, if it is at most 128 bits wide, from the bytes of its record.
    ///
    /// # Panics
    ///
    /// If the field is wider than 128 bits, or `bytes` is shorter than the record.
    pub fn get_wide(&self, bytes: &[u8]) -> u128 {
        assert!(self.width <= 128, "a field of {} bits is read as bytes", self.width);
        let first = (self.offset / 8) as usize;
        let last = ((self.end() - 1) / 8) as usize;
        let shift = self.offset % 8;
        // A field of 128 bits may begin inside a byte and so touch seventeen; the lowest byte then comes in last.
        let mut value: u128 = 0;
        for index in (first + 1..=last).rev() {
            value = value << 8 | u128::from(bytes[index]);
        }
        value = value << (8 - shift) | u128::from(bytes[first] >> shift);
        if self.width < 128 { value & ((1 << self.width) - 1) } else { value }
    }

    /// Writes the field, if it is at most 64 bits wide, and leaves its neighbours alone.
    ///
    /// # Errors
    ///
    /// If the number does not fit, or is outside the field's range or list of values; nothing is written then.
    ///
    /// # Panics
    ///
    /// If `bytes` is shorter than the record.
    pub fn set(&self, bytes: &mut [u8], value: u64) -> Result<(), FieldError> {
        self.check(value)?;
        self.put(bytes, u128::from(value));
        Ok(())
    }

    /// Writes the field, if it is at most 128 bits wide.
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
            // The error carries 64 bits, so a larger number is shown as the largest.
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
    /// Names the field, the number and what would be allowed.
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

/// What a refused field would have accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Any number from `min` to `max`, both included.
    Range {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// One of the values of a list.
    OneOf(&'static ValueTable),
    /// Zero, because the bits are reserved.
    Zero,
    /// At least so many bytes of memory.
    BytesAtLeast(u64),
}

/// Bits that say something impossible: which field, what it held, and what would have been allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Name of the record.
    pub record: &'static str,
    /// Name of the field, or `reserved`, or `length` for a buffer that is too short.
    pub field: &'static str,
    /// What was found.
    pub value: u64,
    /// What would have been allowed.
    pub allowed: Allowed,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} is {:#x}; ", self.record, self.field, self.value)?;
        match self.allowed {
            Allowed::Range { min, max } => write!(f, "allowed are {min:#x} to {max:#x}"),
            Allowed::OneOf(table) => {
                write!(f, "allowed are")?;
                for (index, entry) in table.values.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma} {:#x} ({})", entry.value, entry.name)?;
                }
                Ok(())
            }
            Allowed::Zero => write!(f, "reserved bits are zero"),
            Allowed::BytesAtLeast(bytes) => write!(f, "needed are at least {bytes} bytes"),
        }
    }
}

impl core::error::Error for FieldError {}

/// A record: its size, its fields in rising order, and the bits that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Name in `CamelCase`.
    pub name: &'static str,
    /// What it is for.
    pub meaning: &'static str,
    /// Where it comes from.
    pub section: &'static str,
    /// Size, reserved bits included.
    pub bits: u32,
    /// The fields, in rising order of their bits.
    pub fields: &'static [Field],
    /// Ranges of bits (first, first beyond) that are written as zero. Readers of host memory refuse other values, so
    /// that a later version can give them a meaning.
    pub reserved: &'static [(u32, u32)],
}

/// A stretch of a record, as [`Record::spans`] gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// A field.
    Field(&'static Field),
    /// Reserved bits: the first, and the first beyond.
    Reserved(u32, u32),
}

impl Record {
    /// Size in memory.
    pub const fn bytes(&self) -> usize {
        self.bits.div_ceil(8) as usize
    }

    /// Finds a field by name; an unknown name is a compile error where this runs in a constant.
    ///
    /// # Panics
    ///
    /// If there is no such field.
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

    /// Walks over the record from bit 0 upward: fields and reserved bits, without a gap.
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

    /// Checks that memory is long enough and that all reserved bits are zero.
    ///
    /// # Errors
    ///
    /// If the memory is too short, or the first reserved range that holds a one.
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

    /// Fills memory with the reset values of all fields.
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

    /// Checks that memory is long enough for the record.
    ///
    /// # Errors
    ///
    /// If it is not.
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

    /// Panics, at compile time, unless the table describes every bit of the record exactly once, in rising order,
    /// with unique names and with reset values and ranges that fit.
    pub const fn prove(&self) {
        let mut bit = 0;
        let mut field = 0;
        let mut hole = 0;
        while bit < self.bits {
            if field < self.fields.len() && self.fields[field].offset == bit {
                let entry = &self.fields[field];
                assert!(entry.width > 0, "a field without bits");
                assert!(entry.reset <= entry.max(), "a reset value does not fit its field");
                if let Some((min, max)) = entry.range {
                    assert!(min <= max && max <= entry.max(), "a range does not fit its field");
                    assert!(min <= entry.reset && entry.reset <= max, "a reset value is not in its range");
                }
                if let Some(table) = entry.values {
                    let mut value = 0;
                    let mut listed = false;
                    while value < table.values.len() {
                        assert!(table.values[value].value <= entry.max(), "a value does not fit its field");
                        listed |= table.values[value].value == entry.reset;
                        value += 1;
                    }
                    assert!(listed, "a reset value is not in its list");
                }
                let mut other = 0;
                while other < field {
                    assert!(!same(self.fields[other].name, entry.name), "two fields of one name");
                    other += 1;
                }
                bit = entry.end();
                field += 1;
            } else if hole < self.reserved.len() && self.reserved[hole].0 == bit {
                assert!(self.reserved[hole].1 > bit, "reserved bits that end before they begin");
                bit = self.reserved[hole].1;
                hole += 1;
            } else {
                panic!("a gap or an overlap between fields");
            }
        }
        assert!(bit == self.bits, "a field reaches beyond its record");
        assert!(field == self.fields.len() && hole == self.reserved.len(), "fields do not rise");
    }
}

/// A field to be completed by functional update.
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

/// A Rust type that can stand in a field.
pub trait FieldValue: Copy + Sized {
    /// The legal values, if the type is a list of them.
    const VALUES: Option<&'static ValueTable> = None;

    /// Reads a field.
    ///
    /// # Errors
    ///
    /// If the bits are not a value of this type, or outside the field's range.
    fn read(field: &Field, bytes: &[u8]) -> Result<Self, FieldError>;

    /// Writes a field.
    ///
    /// # Errors
    ///
    /// If the value does not fit the field or its range.
    fn write(self, field: &Field, bytes: &mut [u8]) -> Result<(), FieldError>;
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl FieldValue for $int {
            fn read(field: &Field, bytes: &[u8]) -> Result<Self, FieldError> {
                let value = field.get(bytes);
                field.check(value)?;
                Self::try_from(value).map_err(|_| {
                    field.refuse(value, Allowed::Range { min: 0, max: u64::from(Self::MAX) })
                })
            }

            fn write(self, field: &Field, bytes: &mut [u8]) -> Result<(), FieldError> {
                field.set(bytes, u64::from(self))
            }
        }
    )*};
}
integers!(u8, u16, u32, u64);

impl FieldValue for bool {
    fn read(field: &Field, bytes: &[u8]) -> Result<Self, FieldError> {
        let value = field.get(bytes);
        field.check(value)?;
        Ok(value != 0)
    }

    fn write(self, field: &Field, bytes: &mut [u8]) -> Result<(), FieldError> {
        field.set(bytes, u64::from(self))
    }
}

impl FieldValue for u128 {
    fn read(field: &Field, bytes: &[u8]) -> Result<Self, FieldError> {
        Ok(field.get_wide(bytes))
    }

    fn write(self, field: &Field, bytes: &mut [u8]) -> Result<(), FieldError> {
        field.set_wide(bytes, self)
    }
}

/// Bytes that keep their order: immediate data, addresses in wire order, inline payload.
impl<const N: usize> FieldValue for [u8; N] {
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

/// Declares an enumeration that stands in fields, with its table of values.
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
            /// All values with their names.
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

            /// Every variant, in rising order.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),+ ];

            /// Finds the variant for a number.
            pub const fn from_number(number: u64) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$variant), )+
                    _ => None,
                }
            }

            /// Gives the number that stands in the field.
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// Names the value in `snake_case`.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $text, )+ }
            }
        }

        const _: () = $name::TABLE.prove();

        impl $crate::field::FieldValue for $name {
            const VALUES: Option<&'static $crate::field::ValueTable> = Some(&$name::TABLE);

            fn read(field: &$crate::field::Field, bytes: &[u8]) -> Result<Self, $crate::field::FieldError> {
                let value = field.get(bytes);
                Self::from_number(value).ok_or($crate::field::FieldError {
                    record: field.record,
                    field: field.name,
                    value,
                    allowed: $crate::field::Allowed::OneOf(&Self::TABLE),
                })
            }

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
///     /// What the record is for.
///     pub struct Name: 64 bits by Driver, "protocol 1.3" {
///         /// What the field means.
///         number: u32 = 0..24, "protocol 1.3";
///         /// Options follow in this order: unit, writer, reset value, legal range.
///         length: u32 = 32..64, "protocol 2.1", unit "bytes", by Send, reset 7, allowed 0..=9;
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
            /// The table.
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

            /// Gives the record with every field at its reset value.
            pub fn at_reset() -> Self {
                let mut bytes = [0; Self::BYTES];
                Self::RECORD.reset(&mut bytes);
                Self::parse(&bytes).expect("the proof of the record has checked every reset value")
            }

            /// Reads the record from memory.
            ///
            /// # Errors
            ///
            /// If the memory is too short, a reserved bit is not zero, or a field holds a number that it must not.
            pub fn parse(bytes: &[u8]) -> Result<Self, $crate::field::FieldError> {
                Self::RECORD.check_reserved(bytes)?;
                Ok(Self {
                    $( $field: $crate::field::FieldValue::read(
                        const { Self::RECORD.field(stringify!($field)) }, bytes,
                    )?, )*
                })
            }

            /// Writes the whole record, reserved bits as zero.
            ///
            /// # Errors
            ///
            /// If the memory is too short, or a value does not fit its field; the memory then holds nothing useful.
            pub fn emit(&self, bytes: &mut [u8]) -> Result<(), $crate::field::FieldError> {
                Self::RECORD.check_length(bytes.len())?;
                bytes[..Self::BYTES].fill(0);
                $( $crate::field::FieldValue::write(
                    self.$field, const { Self::RECORD.field(stringify!($field)) }, bytes,
                )?; )*
                Ok(())
            }

            /// Writes the record into an array of its own.
            ///
            /// # Errors
            ///
            /// If a value does not fit its field.
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

/// Picks the value of an option of [`record!`], or its default where the option is not given.
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
            middle: u16 = 5..17, "none", unit "cycles", by Card, reset 9;
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
