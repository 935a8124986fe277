//! Names of cards, as a person writes them on a command line or in an environment variable.

use crate::function::{Function, FunctionError};
use crate::pci_address::{PciAddress, PciAddressError};
use crate::vfio::{Access, OpenOptions, VfioFunction};
use crate::vfio_user::{ConnectOptions, VfioUserFunction};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
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
        /// How it is opened: written behind the address, as in `pci:0000:65:00.0,time-scale=1000,access=group`.
        options: OpenOptions,
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
    #[error(transparent)]
    Address(#[from] PciAddressError),
    /// What follows the address is no option.
    #[error(
        "`{text}` is no option of a card; write `time-scale=` and how many times longer than hardware a simulated card takes, \
         `access=group` or `access=iommufd`, as in pci:0000:65:00.0,time-scale=1000, or nothing"
    )]
    Option {
        /// What follows a comma.
        text: String,
    },
}

/// Names of the options of a function.
const TIME_SCALE: &str = "time-scale=";
const ACCESS: &str = "access=";
/// Values of [`ACCESS`].
const ACCESSES: [(Access, &str); 2] = [(Access::Group, "group"), (Access::Iommufd, "iommufd")];

/// Takes over one option.
fn option(options: &mut OpenOptions, text: &str) -> Option<()> {
    if let Some(number) = text.strip_prefix(TIME_SCALE) {
        options.time_scale = number.parse().ok().filter(|&number| number != 0)?;
    } else {
        let value = text.strip_prefix(ACCESS)?;
        options.access = ACCESSES.iter().find(|(_, name)| *name == value)?.0;
    }
    Some(())
}

/// What follows `pci:`.
fn pci(text: &str) -> Result<DeviceName, DeviceNameError> {
    let mut parts = text.split(',');
    let address = parts.next().unwrap_or_default().parse();
    let mut options = OpenOptions::default();
    for text in parts {
        option(&mut options, text).ok_or_else(|| DeviceNameError::Option { text: text.to_string() })?;
    }
    Ok(DeviceName::Pci { address: address?, options })
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(name: &str) -> Result<Self, DeviceNameError> {
        match name.split_once(':') {
            Some(("vfu", path)) => vfio_user(OsStr::new(path)),
            Some(("pci", address)) => pci(address),
            Some(("sim", _)) => {
                let what = "a simulated card in this process";
                Err(DeviceNameError::NoBackEnd { name: name.to_string(), what })
            }
            _ => Err(DeviceNameError::UnknownKind { name: name.to_string() }),
        }
    }
}

/// What follows `vfu:`.
fn vfio_user(path: &OsStr) -> Result<DeviceName, DeviceNameError> {
    if path.is_empty() { Err(DeviceNameError::NoPath) } else { Ok(DeviceName::VfioUser(path.into())) }
}

impl TryFrom<&OsStr> for DeviceName {
    type Error = DeviceNameError;

    /// Reads a name whose path need not be UTF-8, as on a command line.
    fn try_from(name: &OsStr) -> Result<Self, DeviceNameError> {
        match name.as_bytes().strip_prefix(b"vfu:") {
            Some(path) => vfio_user(OsStr::from_bytes(path)),
            None => name.to_string_lossy().parse(),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci { address, options: OpenOptions { access, time_scale } } => {
                write!(f, "pci:{address}")?;
                if *time_scale != 1 {
                    write!(f, ",{TIME_SCALE}{time_scale}")?;
                }
                match ACCESSES.iter().find(|(known, _)| known == access) {
                    Some((_, name)) => write!(f, ",{ACCESS}{name}"),
                    None => Ok(()),
                }
            }
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
            Self::Pci { address, options } => Ok(Arc::new(VfioFunction::open(address, options)?)),
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
            ("pci:65:00.0,access=group", "pci:0000:65:00.0,access=group", 1),
            ("pci:65:00.0,access=iommufd,time-scale=7", "pci:0000:65:00.0,time-scale=7,access=iommufd", 7),
        ] {
            let name: DeviceName = text.parse().unwrap();
            assert_eq!(name.to_string(), written);
            let DeviceName::Pci { options, .. } = name else { panic!("{name}") };
            assert_eq!(options.time_scale, scale);
            let access = ["group", "iommufd"].map(|access| text.contains(access));
            let expected = [Access::Group, Access::Iommufd].map(|access| options.access == access);
            assert_eq!(access, expected, "{text}");
        }
    }

    #[test]
    fn a_socket_may_have_a_path_that_is_no_text() {
        for bytes in [&b"vfu:/run/\xff\xfe"[..], b"vfu:a", b"vfu:\xff:b"] {
            let name = DeviceName::try_from(OsStr::from_bytes(bytes)).unwrap();
            assert_eq!(name, DeviceName::VfioUser(OsStr::from_bytes(&bytes[4..]).into()));
        }
        let pci = DeviceName::try_from(OsStr::new("pci:65:00.1")).unwrap();
        assert_eq!(pci.to_string(), "pci:0000:65:00.1");
        for (bytes, expected) in
            [(&b"vfu:"[..], "is followed by no path"), (b"\xff:a", "is no name of a card")]
        {
            let error = DeviceName::try_from(OsStr::from_bytes(bytes)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
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
            ("pci:", "`` is no address of a PCI function"),
            ("pci:65", "`65` is no address of a PCI function"),
            ("pci:65:00.0,", "`` is no option of a card"),
            ("pci:65:00.0,time-scale=0", "`time-scale=0` is no option"),
            ("pci:65:00.0,scale=2", "`scale=2` is no option"),
            ("pci:65:00.0,time-scale=2,access=file", "`access=file` is no option"),
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
