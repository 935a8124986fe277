//! Ports: how Verilator stores them, and the handles through which they are read and written.

use std::fmt;
use std::marker::PhantomData;

/// Whether a port is driven by the test or by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Driven by the test.
    Input,
    /// Driven by the model.
    Output,
    /// Driven by both sides.
    InOut,
}

/// How Verilator stores a port: the smallest of these that holds its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    U8,
    U16,
    U32,
    U64,
    Words(usize),
}

impl Storage {
    /// The words that a value of this storage is read and written as.
    pub(crate) fn words(self) -> usize {
        match self {
            Storage::U8 | Storage::U16 | Storage::U32 => 1,
            Storage::U64 => 2,
            Storage::Words(count) => count,
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Storage::U8 => write!(f, "u8"),
            Storage::U16 => write!(f, "u16"),
            Storage::U32 => write!(f, "u32"),
            Storage::U64 => write!(f, "u64"),
            Storage::Words(count) => write!(f, "[u32; {count}]"),
        }
    }
}

/// One port of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    pub(crate) name: String,
    pub(crate) member: String,
    pub(crate) direction: Direction,
    pub(crate) width: u32,
    pub(crate) storage: Storage,
}

impl PortInfo {
    /// The name in the Verilog.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who drives the port.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// The width in bits.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The number of 32-bit words that hold a value of the port.
    pub fn words(&self) -> usize {
        self.storage.words()
    }

    /// Reads a declaration of Verilator's header: `VL_IN8(&name,msb,lsb);` or `VL_OUTW(&name,msb,lsb,words);`.
    /// `None` says that the line declares no port; an error, that it does in a way not known here.
    pub(crate) fn parse(line: &str) -> Option<Result<PortInfo, ()>> {
        let (direction, rest) =
            [("VL_INOUT", Direction::InOut), ("VL_IN", Direction::Input), ("VL_OUT", Direction::Output)]
                .iter()
                .find_map(|(prefix, direction)| Some((*direction, line.trim().strip_prefix(prefix)?)))?;
        Some(PortInfo::parse_rest(direction, rest).ok_or(()))
    }

    fn parse_rest(direction: Direction, rest: &str) -> Option<PortInfo> {
        let (suffix, rest) = rest.split_once("(&")?;
        let (arguments, _) = rest.split_once(')')?;
        let arguments: Vec<&str> = arguments.split(',').collect();
        let number = |index: usize| arguments.get(index)?.parse::<u32>().ok();
        let width = number(1)?.checked_sub(number(2)?)? + 1;
        let storage = match suffix {
            "8" => Storage::U8,
            "16" => Storage::U16,
            "" => Storage::U32,
            "64" => Storage::U64,
            "W" => Storage::Words(number(3)? as usize),
            _ => return None,
        };
        let member = arguments[0].to_string();
        Some(PortInfo { name: verilog_name(&member), member, direction, width, storage })
    }

    /// One line of text, without Verilator's member name.
    pub(crate) fn to_line(&self) -> String {
        let direction = match self.direction {
            Direction::Input => "in",
            Direction::Output => "out",
            Direction::InOut => "inout",
        };
        format!("{direction} {} {}", self.width, self.name)
    }

    /// Reads what [`PortInfo::to_line`] wrote.
    pub(crate) fn from_line(line: &str) -> Option<PortInfo> {
        let mut words = line.splitn(3, ' ');
        let direction = match words.next()? {
            "in" => Direction::Input,
            "out" => Direction::Output,
            "inout" => Direction::InOut,
            _ => return None,
        };
        let width: u32 = words.next()?.parse().ok()?;
        let storage = match width {
            0 => return None,
            1..=8 => Storage::U8,
            9..=16 => Storage::U16,
            17..=32 => Storage::U32,
            33..=64 => Storage::U64,
            _ => Storage::Words(width.div_ceil(32) as usize),
        };
        let name = words.next()?.to_string();
        Some(PortInfo { member: String::new(), name, direction, width, storage })
    }
}

/// Undoes Verilator's spelling of names: `__0HH` is the character with that code, which also hides a double
/// underscore, and `__SYM__` guards words of C++.
fn verilog_name(member: &str) -> String {
    let mut rest = member.strip_prefix("__SYM__").unwrap_or(member);
    let mut name = String::new();
    while let Some(position) = rest.find("__0") {
        let code = rest.get(position + 3..position + 5).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let Some(code) = code else { break };
        name.push_str(&rest[..position]);
        name.push(char::from(code));
        rest = &rest[position + 5..];
    }
    name + rest
}

mod sealed {
    pub trait Sealed {}
}

/// A type in which Verilator stores ports.
pub trait PortValue: sealed::Sealed + Copy + 'static {
    #[doc(hidden)]
    fn type_name() -> String;
    #[doc(hidden)]
    fn fits(words: usize, width: u32) -> bool;
    /// Whether no bit at `width` or above is set.
    #[doc(hidden)]
    fn is_within(&self, width: u32) -> bool;
}

macro_rules! port_value {
    ($($type:ident: $lowest:literal..=$highest:literal),*) => { $(
        impl sealed::Sealed for $type {}
        impl PortValue for $type {
            fn type_name() -> String {
                stringify!($type).into()
            }
            fn fits(_words: usize, width: u32) -> bool {
                ($lowest..=$highest).contains(&width)
            }
            fn is_within(&self, width: u32) -> bool {
                width == $type::BITS || self >> width == 0
            }
        }
    )* };
}

port_value!(u8: 1..=8, u16: 9..=16, u32: 17..=32, u64: 33..=64);

impl<const N: usize> sealed::Sealed for [u32; N] {}
impl<const N: usize> PortValue for [u32; N] {
    fn type_name() -> String {
        format!("[u32; {N}]")
    }
    fn fits(words: usize, width: u32) -> bool {
        width > 64 && words == N
    }
    fn is_within(&self, width: u32) -> bool {
        words_are_within(self, width)
    }
}

/// Whether no bit at `width` or above is set in words, the lowest first.
pub(crate) fn words_are_within(words: &[u32], width: u32) -> bool {
    let whole = (width / 32) as usize;
    words.iter().enumerate().skip(whole).all(|(index, &word)| {
        let rest = if index == whole { width % 32 } else { 0 };
        word.checked_shr(rest).unwrap_or(0) == 0
    })
}

/// A handle to a port of any width, read and written as 32-bit words with the lowest first. It belongs to the
/// model, and serves every instance of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnyPort {
    pub(crate) model: u32,
    pub(crate) index: u32,
    pub(crate) width: u32,
    pub(crate) storage: Storage,
    pub(crate) is_writable: bool,
}

impl AnyPort {
    /// The width in bits.
    pub fn width(self) -> u32 {
        self.width
    }

    /// The number of words that hold a value.
    pub fn words(self) -> usize {
        self.storage.words()
    }
}

/// A handle to a port that is stored as a `T`. It belongs to the model, and serves every instance of it.
#[derive(Debug)]
pub struct Port<T> {
    pub(crate) any: AnyPort,
    pub(crate) value: PhantomData<fn() -> T>,
}

impl<T> Clone for Port<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Port<T> {}

impl<T> Port<T> {
    /// The width in bits.
    pub fn width(self) -> u32 {
        self.any.width
    }

    /// The same port as words.
    pub fn any(self) -> AnyPort {
        self.any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_of_verilator_are_understood() {
        let wide = PortInfo::parse("    VL_INW(&a_i,599,0,19);").unwrap().unwrap();
        assert_eq!((wide.name(), wide.width(), wide.words()), ("a_i", 600, 19));
        assert_eq!(wide.direction(), Direction::Input);
        let narrow = PortInfo::parse("VL_OUT(&csum,31,0);").unwrap().unwrap();
        assert_eq!((narrow.storage, narrow.direction()), (Storage::U32, Direction::Output));
        assert_eq!(PortInfo::parse("VL_INOUT8(&pad,0,0);").unwrap().unwrap().direction(), Direction::InOut);
        assert!(PortInfo::parse("Vm__Syms* const vlSymsp;").is_none());
        assert!(PortInfo::parse("VL_IN3(&a,0,0);").unwrap().is_err());
    }

    #[test]
    fn names_are_spelled_as_in_the_verilog() {
        assert_eq!(verilog_name("a_i"), "a_i");
        assert_eq!(verilog_name("a___05Fb"), "a__b");
        assert_eq!(verilog_name("__SYM__class"), "class");
    }

    #[test]
    fn lines_of_the_port_list_come_back() {
        for (width, storage) in [(1, Storage::U8), (9, Storage::U16), (64, Storage::U64)] {
            let port = PortInfo::from_line(&format!("out {width} x")).unwrap();
            assert_eq!(port.storage, storage);
            assert_eq!(PortInfo::from_line(&port.to_line()), Some(port));
        }
        assert_eq!(PortInfo::from_line("in 65 x").unwrap().storage, Storage::Words(3));
        for bad in ["", "in", "in x y", "in 0 x", "up 1 x"] {
            assert_eq!(PortInfo::from_line(bad), None, "{bad}");
        }
    }

    #[test]
    fn bits_beyond_the_width_are_seen() {
        assert!(3u8.is_within(2) && !4u8.is_within(2) && u8::MAX.is_within(8));
        assert!(u64::MAX.is_within(64) && !(1u64 << 63).is_within(63));
        assert!([0, 0, 1].is_within(65) && ![0, 0, 2].is_within(65) && [0, 0, u32::MAX].is_within(96));
        assert!(!words_are_within(&[0, 1], 32) && words_are_within(&[u32::MAX], 32));
    }
}
