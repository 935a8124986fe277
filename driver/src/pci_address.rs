//! Address of a PCI function, as Linux writes it.

use std::fmt;
use std::str::FromStr;

/// Address of a PCI function: `0000:65:00.0` is domain, bus, device and function, in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain (segment). Hosts have at least 16 bits of it, and virtual ones more.
    pub domain: u32,
    /// Bus, as the bridges above it are numbered.
    pub bus: u8,
    /// Device on the bus, below 32.
    pub device: u8,
    /// Function of the device, below 8.
    pub function: u8,
}

/// A text is no address of a PCI function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no address of a PCI function; write domain, bus, device and function, as in 0000:65:00.0"
)]
pub struct PciAddressError {
    /// The text.
    pub text: String,
}

/// A hexadecimal number of so many digits that is at most `max`.
fn number(text: &str, digits: std::ops::RangeInclusive<usize>, max: u32) -> Option<u32> {
    let is_hex = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u32::from_str_radix(text, 16).ok().filter(|&number| number <= max);
    number.filter(|_| is_hex && digits.contains(&text.len()))
}

fn parse(text: &str) -> Option<PciAddress> {
    let (bus, function) = text.rsplit_once('.')?;
    let (bus, device) = bus.rsplit_once(':')?;
    let (domain, bus) = bus.split_once(':').unwrap_or(("0000", bus));
    Some(PciAddress {
        domain: number(domain, 4..=8, u32::MAX)?,
        bus: number(bus, 2..=2, 0xff)? as u8,
        device: number(device, 2..=2, 0x1f)? as u8,
        function: number(function, 1..=1, 7)? as u8,
    })
}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// Reads an address. Without a domain it is 0, as `lspci` writes it.
    fn from_str(text: &str) -> Result<Self, PciAddressError> {
        parse(text).ok_or_else(|| PciAddressError { text: text.to_string() })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for (text, domain, bus, device, function) in [
            ("0000:65:00.0", 0, 0x65, 0, 0),
            ("ffff:ff:1f.7", 0xffff, 0xff, 0x1f, 7),
            ("10000:01:02.3", 0x10000, 1, 2, 3),
        ] {
            let address = text.parse::<PciAddress>().unwrap();
            assert_eq!(address, PciAddress { domain, bus, device, function });
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("65:1F.1".parse::<PciAddress>().unwrap().to_string(), "0000:65:1f.1");
    }

    #[test]
    fn what_is_no_address_says_how_one_is_written() {
        for text in [
            "",
            ":",
            ".",
            "65",
            "65:00",
            "65.0",
            "0000:65:00",
            "0000:65:20.0",
            "0000:65:00.8",
            "0000:65:00.00",
            "000:65:00.0",
            "0000:165:00.0",
            "0000:65:0.0",
            "0000:6g:00.0",
            "0000:+5:00.0",
            "0000:65:00.0 ",
            "0000:0000:65:00.0",
            "123456789:65:00.0",
            "../0000:65:00.0",
        ] {
            let error = text.parse::<PciAddress>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is no address")) && error.ends_with("0000:65:00.0"));
        }
    }
}
