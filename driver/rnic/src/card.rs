//! Cards by their names, and open cards.

#[cfg(feature = "sim")]
use crate::sim::Simulated;
use rnic_driver::{Device, DeviceName, DeviceNameError, Error, Function, FunctionError, Options};
use std::ffi::OsStr;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Why a card cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open {name}: {reason}")]
pub struct OpenError {
    /// The name of the card.
    pub name: String,
    /// What is in the way. The text has it already, so it is not the source of a chain.
    pub reason: Reason,
}

/// What keeps a card from being opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The name is none of a card.
    #[error("{0}{more}", more = also_simulated(.0))]
    Name(DeviceNameError),
    /// The function or its server cannot be reached.
    #[error("{0}")]
    Function(FunctionError),
    /// The card does not start.
    #[error("{0}")]
    Device(Error),
    /// The simulated card cannot be built, or has broken a rule that a monitor watches.
    #[error("{0}")]
    Simulation(String),
    /// The program has no simulator.
    #[error(
        "this program was built without the simulator; build it with the feature `sim`, or serve a card with \
         `rnic-sim serve --socket PATH`, and open it as vfu:PATH"
    )]
    NoSimulator,
}

/// The driver knows no simulated cards, and names only the others.
fn also_simulated(error: &DeviceNameError) -> &'static str {
    match error {
        DeviceNameError::UnknownKind { .. } if cfg!(feature = "sim") => {
            ", or `sim:` for a simulated card in this process"
        }
        _ => "",
    }
}

impl Reason {
    #[cfg(feature = "sim")]
    pub(crate) fn simulation(error: anyhow::Error) -> Self {
        Self::Simulation(format!("{error:#}"))
    }
}

impl OpenError {
    pub(crate) fn new(name: &str, reason: Reason) -> Self {
        Self { name: name.to_string(), reason }
    }
}

/// What a name stands for.
#[derive(Clone)]
enum Place {
    /// A card of another process, or of this machine.
    Outside(DeviceName),
    #[cfg(feature = "sim")]
    Simulated(Simulated),
}

#[cfg(feature = "sim")]
fn simulated(width: &str) -> Result<Place, Reason> {
    Ok(Place::Simulated(Simulated::alone(width)?))
}

#[cfg(not(feature = "sim"))]
fn simulated(_: &str) -> Result<Place, Reason> {
    Err(Reason::NoSimulator)
}

fn place(name: &OsStr) -> Result<Place, Reason> {
    match name.to_str().and_then(|text| text.strip_prefix("sim:")) {
        Some(width) => simulated(width),
        None => Ok(Place::Outside(name.try_into().map_err(Reason::Name)?)),
    }
}

/// A card that has a name and is not open. It can be opened any number of times, one after the other.
#[derive(Clone)]
pub struct Named {
    text: String,
    place: Place,
}

impl Named {
    /// Reads a name: `sim:`, `vfu:` and the socket of a server, or `pci:` and the address of a function. A simulated card is built, which
    /// takes a minute if none of its width is in the cache.
    ///
    /// # Errors
    ///
    /// If this is no name, or a simulated card cannot be built.
    pub fn new(name: impl AsRef<OsStr>) -> Result<Self, OpenError> {
        let text = name.as_ref().display().to_string();
        let place = place(name.as_ref()).map_err(|reason| OpenError::new(&text, reason))?;
        Ok(Self { text, place })
    }

    #[cfg(feature = "sim")]
    pub(crate) fn simulated(text: String, card: Simulated) -> Self {
        Self { text, place: Place::Simulated(card) }
    }

    /// The name, for people.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Gives the function, or connects to its server.
    ///
    /// # Errors
    ///
    /// If the back end fails.
    pub fn connect(&self) -> Result<Arc<dyn Function>, FunctionError> {
        match &self.place {
            Place::Outside(name) => name.connect(),
            #[cfg(feature = "sim")]
            Place::Simulated(card) => Ok(card.connect()),
        }
    }

    /// Opens the card with a random MAC address that is locally administered. This resets the card.
    ///
    /// # Errors
    ///
    /// If the card cannot be reached, somebody else has it, or it does not start.
    pub fn open(&self) -> Result<Card, OpenError> {
        self.open_with(Options::new(random_mac()))
    }

    /// As [`Self::open`], with these options.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], or if an option is outside the limits of the card.
    pub fn open_with(&self, options: Options) -> Result<Card, OpenError> {
        let error = |reason| OpenError::new(&self.text, reason);
        let function = self.connect().map_err(|failure| error(Reason::Function(failure)))?;
        let device = Device::open(Arc::clone(&function), options);
        Ok(Card { device: device.map_err(|failure| error(Reason::Device(failure)))?, function })
    }

    /// Returns whether the card is known to be alone on its wire, which is in loopback: it has no peer but itself.
    pub fn is_alone(&self) -> bool {
        match &self.place {
            Place::Outside(_) => false,
            #[cfg(feature = "sim")]
            Place::Simulated(card) => card.is_alone,
        }
    }

    /// Returns whether the card is simulated in this process: the clock of its function is that of the simulation.
    pub fn is_simulated(&self) -> bool {
        !matches!(self.place, Place::Outside(_))
    }

    /// Fails if it is known that the card has broken a rule, as the monitors of a simulation in this process know.
    ///
    /// # Errors
    ///
    /// [`Reason::Simulation`], with the rule.
    pub fn check(&self) -> Result<(), Reason> {
        match &self.place {
            Place::Outside(_) => Ok(()),
            #[cfg(feature = "sim")]
            Place::Simulated(card) => card.check(),
        }
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Named({})", self.text)
    }
}

/// A random MAC address of one station, locally administered.
fn random_mac() -> [u8; 6] {
    let mut mac: [u8; 6] = rand::random();
    mac[0] = mac[0] & !0b11 | 0b10;
    mac
}

/// An open card. It derefs to its [`Device`], which creates all objects. The card is reset once this and all objects are dropped.
#[derive(Clone)]
pub struct Card {
    /// The card, for the verbs.
    pub device: Device,
    /// The PCI function below it: configuration space, clock, interrupts.
    pub function: Arc<dyn Function>,
}

impl Deref for Card {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Card").field(&self.device).finish()
    }
}

/// Opens a card by its name:
///
/// | name | card |
/// |---|---|
/// | `sim:` | a simulated card in this process, of 64 bits or, as `sim:512`, of another width, whose wire is in loopback |
/// | `vfu:/run/card.sock` | a card that another process serves at this socket, as `rnic-sim serve` does |
/// | `pci:0000:65:00.0` | a PCI function of this machine, behind the kernel's VFIO |
///
/// The port gets a random MAC address; [`Named::open_with`] opens a card with another one and other options.
///
/// # Errors
///
/// If this is no name, or the card cannot be built, reached or started, or is open already. The text says what to do.
pub fn open(name: impl AsRef<OsStr>) -> Result<Card, OpenError> {
    Named::new(name)?.open()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_opened_is_named_with_what_to_do() {
        for (name, expected) in [
            ("card", "cannot open card: `card` is no name of a card; write `pci:`"),
            ("vfu:", "cannot open vfu:: `vfu:` is followed by no path"),
            (
                "vfu:/nowhere/card",
                "cannot open vfu:/nowhere/card: the server at /nowhere/card cannot be reached",
            ),
            #[cfg(feature = "sim")]
            (
                "sim:96",
                "cannot open sim:96: `96` is no width of a simulated card; allowed are sim:64, sim:128",
            ),
            #[cfg(feature = "sim")]
            ("sim", "in vfu:/run/card.sock, or `sim:` for a simulated card"),
            #[cfg(not(feature = "sim"))]
            ("sim:", "cannot open sim:: this program was built without the simulator"),
        ] {
            let error = open(name).map(drop).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_random_mac_address_is_of_one_station_and_locally_administered() {
        for _ in 0..100 {
            assert_eq!(random_mac()[0] & 0b11, 0b10);
        }
    }
}
