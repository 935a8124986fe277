//! Cards by their names on the command line.

#[cfg(feature = "sim")]
use crate::simulated::Simulated;
use anyhow::{Context, Result};
use rnic_driver::{Device, DeviceName, Function, FunctionError, Options};
use std::ffi::OsStr;
use std::sync::Arc;

/// MAC address of the port while this program has the card: a locally administered one, since nobody else uses the port then.
const MAC: [u8; 6] = [0x02, 0x72, 0x6e, 0x69, 0x63, 0x00];

/// What a name stands for.
#[derive(Clone)]
enum Place {
    /// A card of another process, or of this machine.
    Outside(DeviceName),
    #[cfg(feature = "sim")]
    Simulated(Simulated),
}

/// A card that can be opened, any number of times.
#[derive(Clone)]
pub(crate) struct Named {
    text: String,
    place: Place,
}

/// An open card.
pub(crate) struct Card {
    pub(crate) device: Device,
    pub(crate) function: Arc<dyn Function>,
}

#[cfg(feature = "sim")]
fn simulated(width: &str) -> Result<Place> {
    Ok(Place::Simulated(Simulated::new(width)?))
}

#[cfg(not(feature = "sim"))]
fn simulated(_: &str) -> Result<Place> {
    anyhow::bail!(
        "this program was built without the simulator; build it with the feature `sim`, or serve a card with \
         `rnic-sim serve --socket PATH`, and open it as vfu:PATH"
    )
}

fn place(name: &OsStr) -> Result<Place> {
    match name.to_str().and_then(|text| text.strip_prefix("sim:")) {
        Some(width) => simulated(width),
        None => Ok(Place::Outside(name.try_into()?)),
    }
}

impl Named {
    /// Reads a name. A simulated card is built.
    pub(crate) fn new(name: &OsStr) -> Result<Self> {
        let text = name.display().to_string();
        let place = place(name).with_context(|| format!("cannot open {text}"))?;
        Ok(Self { text, place })
    }

    /// The name, for people.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Gives the function, or connects to its server.
    pub(crate) fn connect(&self) -> Result<Arc<dyn Function>, FunctionError> {
        match &self.place {
            Place::Outside(name) => name.connect(),
            #[cfg(feature = "sim")]
            Place::Simulated(card) => card.connect(),
        }
    }

    /// Opens the card.
    pub(crate) fn open(&self) -> Result<Card> {
        let open = || -> Result<Card> {
            let function = self.connect()?;
            let device = Device::open(Arc::clone(&function), Options::new(MAC))?;
            Ok(Card { device, function })
        };
        open().with_context(|| format!("cannot open {}", self.text))
    }

    /// Returns whether the card is alone on its wire, so that it has no peer.
    pub(crate) fn is_alone(&self) -> bool {
        match self.place {
            Place::Outside(_) => false,
            #[cfg(feature = "sim")]
            Place::Simulated(_) => true,
        }
    }

    /// Fails if it is known that the card has broken a rule, as the monitors of a simulation know.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.place {
            Place::Outside(_) => Ok(()),
            #[cfg(feature = "sim")]
            Place::Simulated(card) => card.check().with_context(|| self.text.clone()),
        }
    }
}
