//! Cards by their names on the command line.

use anyhow::{Context, Result, anyhow};
use rnic_driver::{Device, DeviceName, Function, Options};
use std::sync::Arc;

/// MAC address of the port while this program has the card: a locally administered one, since nobody else uses the port then.
const MAC: [u8; 6] = [0x02, 0x72, 0x6e, 0x69, 0x63, 0x00];

/// Reads a name. What it names must be something that this program can open.
pub(crate) fn name(text: &str) -> Result<DeviceName> {
    let parsed: Result<DeviceName, _> = text.parse();
    parsed.map_err(|error| match text.split_once(':') {
        // The simulator is not part of this program, which also runs where there is none.
        Some(("sim", _)) => {
            let advice =
                "`rnic-sim serve --socket PATH` serves a simulated card at PATH; open it as vfu:PATH";
            anyhow!("{error}: {advice}")
        }
        _ => anyhow!(error),
    })
}

/// An open card.
pub(crate) struct Card {
    pub(crate) device: Device,
    pub(crate) function: Arc<dyn Function>,
}

/// Opens a card.
pub(crate) fn open(text: &str) -> Result<Card> {
    let open = || -> Result<Card> {
        let function = name(text)?.connect()?;
        let device = Device::open(Arc::clone(&function), Options::new(MAC))?;
        Ok(Card { device, function })
    };
    open().with_context(|| format!("cannot open {text}"))
}
