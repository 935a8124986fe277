//! Names of cards, as a person writes them on a command line or in an environment variable.

use crate::function::{Function, FunctionError};
use crate::vfio_user::{ConnectOptions, VfioUserFunction};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Name of a card: `vfu:` and the path of the socket of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceName {
    /// A card that another process serves at a socket.
    VfioUser(PathBuf),
}

/// Why a text is no name of a card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceNameError {
    /// The kind of card is known, and this driver has no back end for it.
    #[error(
        "`{name}` names {what}, for which this driver has no back end; use `vfu:` and the socket of a served card"
    )]
    NoBackEnd {
        /// The name.
        name: String,
        /// What it names.
        what: &'static str,
    },
    /// The name begins as no name does.
    #[error(
        "`{name}` is no name of a card; write `vfu:` and the socket of a served card, as in vfu:/run/card.sock"
    )]
    UnknownKind {
        /// The name.
        name: String,
    },
    /// There is no path behind `vfu:`.
    #[error("`vfu:` is followed by no path; write the socket of the served card, as in vfu:/run/card.sock")]
    NoPath,
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(name: &str) -> Result<Self, DeviceNameError> {
        let no_back_end = |what| Err(DeviceNameError::NoBackEnd { name: name.to_string(), what });
        match name.split_once(':') {
            Some(("vfu", "")) => Err(DeviceNameError::NoPath),
            Some(("vfu", path)) => Ok(Self::VfioUser(path.into())),
            Some(("pci", _)) => no_back_end("a PCI function of this machine"),
            Some(("sim", _)) => no_back_end("a simulated card in this process"),
            _ => Err(DeviceNameError::UnknownKind { name: name.to_string() }),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VfioUser(path) => write!(f, "vfu:{}", path.display()),
        }
    }
}

impl DeviceName {
    /// Connects to the card, with the default options of its back end. [`Device::open`](crate::Device::open) takes the result.
    ///
    /// # Errors
    ///
    /// If the back end fails.
    pub fn connect(&self) -> Result<Arc<dyn Function>, FunctionError> {
        match self {
            Self::VfioUser(path) => Ok(Arc::new(VfioUserFunction::connect(path, ConnectOptions::default())?)),
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
    }

    #[test]
    fn what_is_no_name_says_what_would_be() {
        for (text, expected) in [
            (
                "pci:0000:65:00.0",
                "names a PCI function of this machine, for which this driver has no back end",
            ),
            ("sim:", "names a simulated card in this process, for which this driver has no back end"),
            ("vfu:", "`vfu:` is followed by no path"),
            ("vfu", "`vfu` is no name of a card"),
            ("/run/a.sock", "`/run/a.sock` is no name of a card"),
            ("VFU:/run/a.sock", "is no name of a card"),
            ("", "`` is no name of a card"),
        ] {
            let error = text.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("vfu:"), "{error}");
        }
    }

    #[test]
    fn a_card_that_is_not_served_cannot_be_connected() {
        let name: DeviceName = "vfu:/nowhere/card.sock".parse().unwrap();
        let error = name.connect().err().unwrap().to_string();
        assert!(error.starts_with("the server at /nowhere/card.sock cannot be reached"), "{error}");
    }
}
