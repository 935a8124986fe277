//! Identity of a PCI function, and what the driver enables in its configuration space.
//!
//! A back end without a configuration space is no PCI function; then there is nothing to check and nothing to enable.

use crate::error::Error;
use crate::function::{Function, FunctionError};
use crate::identity::{HEADER_BYTES, Identity, identity};
use rnic_layout::pci::{BARS, COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY, MSIX_BAR};

/// Sixteen bits of a configuration space that has a header.
fn word(config: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([config[offset], config[offset + 1]])
}

/// Reads the configuration space: `None` if the card is no PCI function.
fn read(function: &dyn Function) -> Result<Option<Vec<u8>>, Error> {
    let config = function.config_space()?;
    match config.len() {
        0 => Ok(None),
        HEADER_BYTES.. => Ok(Some(config)),
        bytes => Err(FunctionError::ShortConfigSpace { bytes, needed: HEADER_BYTES }.into()),
    }
}

/// Fails unless the function is a card of this layout, with BARs of the right sizes. Writes nothing.
pub(crate) fn identify(function: &dyn Function) -> Result<(), Error> {
    let Some(config) = read(function)? else { return Ok(()) };
    match identity(&config) {
        Identity::Ours => {}
        Identity::Absent => {
            function.check()?;
            return Err(Error::Absent);
        }
        Identity::Other { what, found, expected } => {
            return Err(Error::NotOurFunction { what, found, expected });
        }
    }
    // The interrupt vectors belong to the back end, which need not show their BAR.
    for bar in BARS.iter().filter(|bar| bar.index != MSIX_BAR) {
        let bytes = function.bar(bar.index)?.bytes();
        if bytes != bar.bytes {
            return Err(Error::BarSize { bar: bar.index, bytes, expected: bar.bytes });
        }
    }
    Ok(())
}

/// Changes the command register to these bits out of memory and bus master.
fn command(function: &dyn Function, bits: u16) -> Result<(), Error> {
    let Some(config) = read(function)? else { return Ok(()) };
    let kept = word(&config, COMMAND.into()) & !(COMMAND_MEMORY | COMMAND_BUS_MASTER);
    Ok(function.write_config(COMMAND, &(kept | bits).to_le_bytes())?)
}

/// Lets the BARs answer, and keeps the card from memory and interrupts.
pub(crate) fn enable_registers(function: &dyn Function) -> Result<(), Error> {
    command(function, COMMAND_MEMORY)
}

/// Lets the card reach memory and raise interrupts too.
pub(crate) fn enable_bus_master(function: &dyn Function) -> Result<(), Error> {
    command(function, COMMAND_MEMORY | COMMAND_BUS_MASTER)
}
