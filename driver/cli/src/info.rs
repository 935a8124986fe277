//! `rnic info`: what a card is.
//!
//! Names, bits and units of registers are those of the tables of `rnic-layout`.

use crate::connect::open;
use crate::counters::{self, Counted};
use crate::output::{bytes, grouped, print_json};
use anyhow::{Context, Result};
use clap::Args;
use pci_driver::config::PciConfig;
use pci_driver::config::caps::{MsiXCapability, PciExpressCapability};
use pci_driver::regions::{AsPciSubregion, BackedByPciSubregion, PciMemoryRegion, PciRegion};
use rnic::{Card, Function, Named};
use rnic_layout::field::Field;
use rnic_layout::pci::{BARS, REGISTER_BAR};
use rnic_layout::registers::{
    Features, LayoutVersion, REG_FEATURES, REG_GEOMETRY, REG_LAYOUT_VERSION, REG_MEMORY_LIMITS,
    REG_MESSAGE_LIMIT, REG_QUEUE_LIMITS, REG_STATUS, REG_TABLE_SIZES, Register, Status,
};
use serde::Serialize;
use std::ffi::OsString;

#[derive(Args)]
pub(crate) struct Options {
    /// The card: vfu:PATH, pci:ADDRESS or sim:.
    device: OsString,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Number of the extended capability with the serial number.
const SERIAL: u16 = 0x0003;
/// Offset of the link status in the capability of PCI Express.
const LINK_STATUS: u64 = 0x12;
/// Offset of the control register in the capability of MSI-X.
const MSIX_CONTROL: u64 = 2;

#[derive(Serialize)]
struct Info {
    device: String,
    pci: Option<Pci>,
    layout: String,
    state: &'static str,
    link_up: bool,
    /// Speed of the port in Mb/s, if the board knows it.
    port_megabits: Option<u32>,
    /// MAC address of the board, if it has one.
    permanent_mac: Option<String>,
    /// Registers with limits, by name.
    limits: Vec<Limits>,
    features: Vec<Feature>,
    /// Counters that are not zero.
    counters: Vec<Counted>,
}

#[derive(Serialize)]
struct Pci {
    vendor: u16,
    device: u16,
    subsystem_vendor: u16,
    subsystem: u16,
    revision: u8,
    serial_number: Option<String>,
    function_level_reset: bool,
    msix_vectors: Option<u16>,
    link: Option<String>,
    bars: Vec<BarInfo>,
}

#[derive(Serialize)]
struct BarInfo {
    index: u8,
    bytes: u64,
    name: &'static str,
}

#[derive(Serialize)]
struct Limits {
    register: &'static str,
    fields: Vec<Limit>,
}

#[derive(Serialize)]
struct Limit {
    /// Name of the field, without `_log2`: the number is then the power of two.
    name: &'static str,
    number: u64,
    unit: &'static str,
}

#[derive(Serialize)]
struct Feature {
    name: &'static str,
    is_present: bool,
}

/// Number in a field of a register.
fn number(field: &Field, register: u64) -> u64 {
    register >> field.offset & field.max()
}

/// Registers of an open card, as numbers.
struct Registers<'a>(&'a dyn Function);

impl Registers<'_> {
    fn read(&self, register: &Register) -> Result<u64> {
        Ok(self.0.bar(REGISTER_BAR)?.read64(register.offset.into()))
    }

    fn limits(&self, register: &'static Register) -> Result<Limits> {
        let value = self.read(register)?;
        let limit = |field: &'static Field| {
            let power = field.name.strip_suffix("_log2");
            let number = number(field, value);
            Limit {
                name: power.unwrap_or(field.name),
                number: if power.is_some() { 1 << number } else { number },
                unit: field.unit,
            }
        };
        Ok(Limits { register: register.name, fields: register.record.fields.iter().map(limit).collect() })
    }
}

/// Speed of a link register, in GT/s.
fn speed(code: u16) -> &'static str {
    match code {
        1 => "2.5 GT/s",
        2 => "5 GT/s",
        3 => "8 GT/s",
        4 => "16 GT/s",
        5 => "32 GT/s",
        6 => "64 GT/s",
        _ => "unknown speed",
    }
}

/// Offset of the extended capabilities.
const EXTENDED: usize = 0x100;

/// Finds the serial number in the extended capabilities, which a hypervisor may hide.
fn serial_number(space: &[u8]) -> Option<String> {
    let word = |offset: usize| Some(u32::from_le_bytes(space.get(offset..offset + 4)?.try_into().ok()?));
    let mut offset = EXTENDED;
    // Each takes eight bytes at least, so a list that is longer leads in circles.
    for _ in 0..space.len() / 8 {
        let header = word(offset)?;
        if header as u16 == SERIAL {
            let halves = [word(offset + 8)?, word(offset + 4)?].map(u32::to_be_bytes);
            let digits: Vec<String> = halves.concat().iter().map(|byte| format!("{byte:02x}")).collect();
            return Some(digits.join("-"));
        }
        offset = header as usize >> 20;
        if offset < EXTENDED {
            break;
        }
    }
    None
}

/// Reads the configuration space as any PCI software does; `None` if the card is no PCI function.
fn pci(function: &dyn Function) -> Result<Option<Pci>> {
    let space = function.config_space()?;
    if space.is_empty() {
        return Ok(None);
    }
    let region = PciMemoryRegion::new(&space[..]);
    let config = PciConfig::backed_by(&region);
    let capabilities = config.capabilities()?;
    let express = capabilities.of_type::<PciExpressCapability<'_>>()?.next();
    let function_level_reset = match &express {
        Some(express) => express.device_capabilities().function_level_reset_capability().read()?,
        None => false,
    };
    let link = match &express {
        Some(express) => {
            let status = express.as_subregion().read_le_u16(LINK_STATUS)?;
            Some(format!("{} x{}", speed(status & 0xf), status >> 4 & 0x3f))
        }
        None => None,
    };
    let msix_vectors = match capabilities.of_type::<MsiXCapability<'_>>()?.next() {
        Some(msix) => Some((msix.as_subregion().read_le_u16(MSIX_CONTROL)? & 0x7ff) + 1),
        None => None,
    };
    let bars = BARS.iter().filter_map(|bar| {
        // The back end keeps the BAR of MSI-X to itself.
        let bytes = function.bar(bar.index).ok()?.bytes();
        Some(BarInfo { index: bar.index, bytes, name: bar.name })
    });
    Ok(Some(Pci {
        vendor: config.vendor_id().read()?,
        device: config.device_id().read()?,
        subsystem_vendor: config.subsystem_vendor_id().read()?,
        subsystem: config.subsystem_id().read()?,
        revision: config.revision_id().read()?,
        serial_number: serial_number(&space),
        function_level_reset,
        msix_vectors,
        link,
        bars: bars.collect(),
    }))
}

fn collect(name: &str, card: &Card) -> Result<Info> {
    let registers = Registers(&*card.function);
    let version = LayoutVersion::parse(&registers.read(&REG_LAYOUT_VERSION)?.to_le_bytes())?;
    let status = Status::parse(&registers.read(&REG_STATUS)?.to_le_bytes())?;
    let present = registers.read(&REG_FEATURES)?;
    let feature =
        |field: &'static Field| Feature { name: field.name, is_present: number(field, present) != 0 };
    let limits = [&REG_GEOMETRY, &REG_TABLE_SIZES, &REG_QUEUE_LIMITS, &REG_MESSAGE_LIMIT, &REG_MEMORY_LIMITS];
    let mac = card.device.permanent_mac()?.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
    Ok(Info {
        device: name.to_string(),
        pci: pci(&*card.function).context("the configuration space")?,
        layout: format!("{}.{}", version.major, version.minor),
        state: match status {
            Status { fatal: true, .. } => "failed",
            Status { ready: true, .. } => "ready",
            _ => "starting",
        },
        link_up: status.link_up,
        port_megabits: card.device.port_speed()?,
        permanent_mac: mac,
        limits: limits.into_iter().map(|register| registers.limits(register)).collect::<Result<_>>()?,
        features: Features::RECORD.fields.iter().map(feature).collect(),
        counters: counters::counted(&card.device.counters()?).filter(|counter| counter.value != 0).collect(),
    })
}

/// Prints a line of two columns.
macro_rules! row {
    ($name:expr, $($value:tt)*) => {
        print_line!("  {:<26} {}", $name, format_args!($($value)*))
    };
}

/// Number of a limit with its unit, as people write it.
fn amount(limit: &Limit) -> String {
    match limit.unit {
        "kHz" if limit.number.is_multiple_of(1000) => format!("{} MHz", grouped(limit.number / 1000)),
        "bytes" => bytes(limit.number),
        unit => format!("{} {unit}", grouped(limit.number)).trim_end().to_string(),
    }
}

/// A name of the tables, as words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn print(info: &Info) -> Result<()> {
    print_line!("{}", info.device);
    row!("state", "{}", info.state);
    let speed =
        info.port_megabits.map_or(String::new(), |megabits| format!(", {} Mb/s", grouped(megabits.into())));
    row!("link", "{}{speed}", if info.link_up { "up" } else { "down" });
    row!("permanent MAC", "{}", info.permanent_mac.as_deref().unwrap_or("none"));
    row!("layout", "{}", info.layout);
    if let Some(pci) = &info.pci {
        print_line!("\nPCI function");
        row!("identity", "{:04x}:{:04x}, revision {}", pci.vendor, pci.device, pci.revision);
        row!("subsystem", "{:04x}:{:04x}", pci.subsystem_vendor, pci.subsystem);
        row!("serial number", "{}", pci.serial_number.as_deref().unwrap_or("hidden"));
        row!("function-level reset", "{}", if pci.function_level_reset { "yes" } else { "no" });
        row!("MSI-X vectors", "{}", pci.msix_vectors.map_or("none".into(), |count| count.to_string()));
        row!("PCI Express", "{}", pci.link.as_deref().unwrap_or("no"));
        for bar in &pci.bars {
            row!(format!("BAR {}", bar.index), "{} of {}", bytes(bar.bytes), bar.name);
        }
    }
    for limits in &info.limits {
        print_line!("\n{}", capitalized(&words(limits.register)));
        for limit in &limits.fields {
            // The number has its unit, which the name may end with.
            let end = format!("_{}", limit.unit.to_lowercase());
            row!(words(limit.name.strip_suffix(&end).unwrap_or(limit.name)), "{}", amount(limit));
        }
    }
    print_line!("\nFeatures");
    for (title, is_present) in [("present", true), ("absent", false)] {
        let names = info.features.iter().filter(|feature| feature.is_present == is_present);
        let names: Vec<String> = names.map(|feature| words(feature.name)).collect();
        for (place, line) in names.chunks(4).enumerate() {
            row!(if place == 0 { title } else { "" }, "{}", line.join(", "));
        }
    }
    print_line!("\nCounters that are not zero");
    counters::print(&info.counters)
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let named = Named::new(&options.device)?;
    let card = open(&named)?;
    let info = collect(named.text(), &card).with_context(|| format!("cannot read {}", named.text()))?;
    if options.json { print_json(&info) } else { print(&info) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::pci::config_image;

    #[test]
    fn a_serial_number_is_found_where_it_is() {
        let image = config_image(0x0200_00ff_fe12_3456);
        assert_eq!(serial_number(&image).as_deref(), Some("02-00-00-ff-fe-12-34-56"));
        assert_eq!(serial_number(&image[..256]), None, "the extended part is hidden");
        let mut moved = image;
        // Another capability first, then the serial number.
        moved.copy_within(0x100..0x10c, 0x200);
        moved[0x100..0x104].copy_from_slice(&(0x200 << 20 | 1 << 16 | 0x0002u32).to_le_bytes());
        assert_eq!(serial_number(&moved).as_deref(), Some("02-00-00-ff-fe-12-34-56"));
        let mut circle = image;
        circle[0x100..0x104].copy_from_slice(&(0x100 << 20 | 1 << 16 | 0x0002u32).to_le_bytes());
        assert_eq!(serial_number(&circle), None);
    }
}
