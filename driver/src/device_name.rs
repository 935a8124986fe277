//! Names of cards, as a person writes them on a command line or in an environment variable.

use crate::function::{Function, FunctionError};
use crate::pci_address::{PciAddress, PciAddressError};
use crate::vfio::{OpenOptions, VfioFunction};
use crate::vfio_user::{ConnectOptions, VfioUserFunction};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Name of a card: `pci:` and the address of its function, or `vfu:` and the path of the socket of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceName {
    /// A PCI function of this machine.
    Pci {
        /// Its address.
        address: PciAddress,
        /// How many times longer than hardware the card takes: more than 1 for one that is simulated behind the bus of a virtual
        /// machine.
        time_scale: u32,
    },
    /// A card that another process serves at a socket.
    VfioUser(PathBuf),
}

/// Why a text is no name of a card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceNameError {
    /// The kind of card is known, and this driver has no back end for it.
    #[error(
        "`{name}` names {what}, for which this driver has no back end; use `pci:` and the address of a function, or `vfu:` and \
         the socket of a served card"
    )]
    NoBackEnd {
        /// The name.
        name: String,
        /// What it names.
        what: &'static str,
    },
    /// The name begins as no name does.
    #[error(
        "`{name}` is no name of a card; write `pci:` and the address of a function, as in pci:0000:65:00.0, or `vfu:` and the \
         socket of a served card, as in vfu:/run/card.sock"
    )]
    UnknownKind {
        /// The name.
        name: String,
    },
    /// There is no path behind `vfu:`.
    #[error("`vfu:` is followed by no path; write the socket of the served card, as in vfu:/run/card.sock")]
    NoPath,
    /// There is no address behind `pci:`.
    #[error("`pci:` is followed by no address: {0}")]
    Address(#[from] PciAddressError),
    /// What follows the address is no time scale.
    #[error(
        "`{text}` is no time scale; write how many times longer than hardware a simulated card takes, as in \
         pci:0000:65:00.0,time-scale=1000, or nothing for hardware"
    )]
    TimeScale {
        /// What follows the comma.
        text: String,
    },
}

/// Separates the time scale from the address.
const TIME_SCALE: &str = "time-scale=";

/// What follows `pci:`.
fn pci(text: &str) -> Result<DeviceName, DeviceNameError> {
    let (address, scale) = text.split_once(',').map_or((text, None), |(address, rest)| (address, Some(rest)));
    let time_scale = match scale {
        None => 1,
        Some(text) => {
            let number = text.strip_prefix(TIME_SCALE).and_then(|number| number.parse().ok());
            let number = number.filter(|&number| number != 0);
            number.ok_or_else(|| DeviceNameError::TimeScale { text: text.to_string() })?
        }
    };
    Ok(DeviceName::Pci { address: address.parse()?, time_scale })
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(name: &str) -> Result<Self, DeviceNameError> {
        match name.split_once(':') {
            Some(("vfu", "")) => Err(DeviceNameError::NoPath),
            Some(("vfu", path)) => Ok(Self::VfioUser(path.into())),
            Some(("pci", address)) => pci(address),
            Some(("sim", _)) => {
                let what = "a simulated card in this process";
                Err(DeviceNameError::NoBackEnd { name: name.to_string(), what })
            }
            _ => Err(DeviceNameError::UnknownKind { name: name.to_string() }),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci { address, time_scale: 1 } => write!(f, "pci:{address}"),
            Self::Pci { address, time_scale } => write!(f, "pci:{address},{TIME_SCALE}{time_scale}"),
            Self::VfioUser(path) => write!(f, "vfu:{}", path.display()),
        }
    }
}

impl DeviceName {
    /// Opens the function, or connects to its server, with the default options of the back end.
    /// [`Device::open`](crate::Device::open) takes the result.
    ///
    /// # Errors
    ///
    /// If the back end fails.
    pub fn connect(&self) -> Result<Arc<dyn Function>, FunctionError> {
        match *self {
            Self::Pci { address, time_scale } => {
                Ok(Arc::new(VfioFunction::open(address, OpenOptions { time_scale })?))
            }
            Self::VfioUser(ref path) => {
                Ok(Arc::new(VfioUserFunction::connect(path, ConnectOptions::default())?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["vfu:/run/a.sock", "vfu:relative", "vfu:/with:colon", "vfu: "] {
            let name: DeviceName = text.parse().unwrap();
            assert_eq!((name.to_string().as_str(), name), (text, DeviceName::VfioUser(text[4..].into())));
        }
        for (text, written, scale) in [
            ("pci:0000:65:00.0", "pci:0000:65:00.0", 1),
            ("pci:65:00.1", "pci:0000:65:00.1", 1),
            ("pci:0000:65:00.0,time-scale=1000", "pci:0000:65:00.0,time-scale=1000", 1000),
        ] {
            let name: DeviceName = text.parse().unwrap();
            assert_eq!(name.to_string(), written);
            assert!(matches!(name, DeviceName::Pci { time_scale, .. } if time_scale == scale));
        }
    }

    #[test]
    fn what_is_no_name_says_what_would_be() {
        for (text, expected) in [
            ("sim:", "names a simulated card in this process, for which this driver has no back end"),
            ("vfu:", "`vfu:` is followed by no path"),
            ("vfu", "`vfu` is no name of a card"),
            ("/run/a.sock", "`/run/a.sock` is no name of a card"),
            ("VFU:/run/a.sock", "is no name of a card"),
            ("", "`` is no name of a card"),
            ("pci:", "`pci:` is followed by no address: `` is no address"),
            ("pci:65", "`65` is no address of a PCI function"),
            ("pci:65:00.0,", "`` is no time scale"),
            ("pci:65:00.0,time-scale=0", "`time-scale=0` is no time scale"),
            ("pci:65:00.0,scale=2", "`scale=2` is no time scale"),
        ] {
            let error = text.parse::<DeviceName>().unwrap_err().to_string();
            assert!(
                error.contains(expected) && error.contains("as in") | error.contains("use `pci:`"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_function_that_is_not_there_cannot_be_opened() {
        let name: DeviceName = "pci:ffffffff:ff:1f.7".parse().unwrap();
        let error = name.connect().err().unwrap().to_string();
        assert!(error.starts_with("the PCI function ffffffff:ff:1f.7 does not exist"), "{error}");
    }

    #[test]
    fn a_card_that_is_not_served_cannot_be_connected() {
        let name: DeviceName = "vfu:/nowhere/card.sock".parse().unwrap();
        let error = name.connect().err().unwrap().to_string();
        assert!(error.starts_with("the server at /nowhere/card.sock cannot be reached"), "{error}");
    }
}
