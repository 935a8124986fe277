//! `rnic list`: cards among the PCI functions of this machine, as sysfs shows them.

use crate::output::print_json;
use anyhow::{Context, Result};
use clap::Args;
use rnic::DeviceName;
use rnic_layout::pci::{DEVICE, REVISION, SUBSYSTEM, SUBSYSTEM_VENDOR, VENDOR};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Options {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Where sysfs is mounted.
    #[arg(long, default_value = "/sys", hide = true)]
    sysfs: PathBuf,
}

/// A PCI function that is a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Found {
    /// Domain, bus, device and function.
    address: String,
    /// Revision, which is the major version of the layout.
    revision: u64,
    /// Kernel driver that it is bound to.
    driver: Option<String>,
    /// Its IOMMU group.
    iommu_group: Option<String>,
}

#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    found: Found,
    /// What opens it, or is to be done before.
    advice: String,
}

/// The driver that gives a function to user space.
const VFIO: &str = "vfio-pci";

impl Found {
    /// What opens the card, or what is to be done before.
    fn advice(&self) -> String {
        let address = &self.address;
        if self.revision != u64::from(REVISION) {
            let revision = self.revision;
            return format!(
                "its layout has version {revision}, and this program speaks {REVISION}: use the program that was built with the card"
            );
        }
        if self.iommu_group.is_none() {
            return "it has no IOMMU: switch it on in the firmware and with intel_iommu=on or amd_iommu=on"
                .into();
        }
        match self.driver.as_deref() {
            Some(VFIO) => match format!("pci:{address}").parse::<DeviceName>() {
                Ok(name) => format!("open it as {name}"),
                Err(error) => error.to_string(),
            },
            Some(driver) => {
                format!("{driver} has it: scripts/bind-vfio.sh {address} shows how to bind it to {VFIO}")
            }
            None => format!("scripts/bind-vfio.sh {address} shows how to bind it to {VFIO}"),
        }
    }
}

/// Reads a number of sysfs, hexadecimal.
fn number(folder: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join(name)).ok()?;
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// Last part of the path that a link leads to.
fn link(folder: &Path, name: &str) -> Option<String> {
    let target = std::fs::read_link(folder.join(name)).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// The card in a folder of a PCI function; `None` if it is another function.
fn card(folder: &Path) -> Option<Found> {
    let identity = [
        ("vendor", VENDOR),
        ("device", DEVICE),
        ("subsystem_vendor", SUBSYSTEM_VENDOR),
        ("subsystem_device", SUBSYSTEM),
    ];
    if identity.iter().any(|&(name, expected)| number(folder, name) != Some(expected.into())) {
        return None;
    }
    Some(Found {
        address: folder.file_name()?.to_string_lossy().into_owned(),
        revision: number(folder, "revision")?,
        driver: link(folder, "driver"),
        iommu_group: link(folder, "iommu_group"),
    })
}

/// All cards, by address.
fn cards(sysfs: &Path) -> Result<Vec<Found>> {
    let functions = sysfs.join("bus/pci/devices");
    if !functions.exists() {
        // A machine without PCI has no such folder.
        return Ok(Vec::new());
    }
    let entries = functions.read_dir().with_context(|| format!("cannot read {}", functions.display()))?;
    let mut cards: Vec<Found> = entries.filter_map(|entry| card(&entry.ok()?.path())).collect();
    cards.sort_by(|one, other| one.address.cmp(&other.address));
    Ok(cards)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let cards = cards(&options.sysfs)?;
    if options.json {
        let entries: Vec<Entry> =
            cards.into_iter().map(|found| Entry { advice: found.advice(), found }).collect();
        return print_json(&entries);
    }
    if cards.is_empty() {
        print_line!("No PCI function of this machine is an rnic card ({VENDOR:04x}:{DEVICE:04x}).");
        print_line!(
            "A simulated card is served by `rnic-sim serve --socket PATH`, and opened as vfu:PATH; sim: is one here."
        );
        return Ok(());
    }
    print_line!("{:<14} {:<12} {:<6} What to do", "Address", "Driver", "Group");
    for found in &cards {
        let [driver, group] = [&found.driver, &found.iommu_group].map(|name| name.as_deref().unwrap_or("-"));
        print_line!("{:<14} {driver:<12} {group:<6} {}", found.address, found.advice());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_a_function_has_its_advice() {
        const OURS: u64 = REVISION as u64;
        let newer = format!("its layout has version {}", OURS + 1);
        let found = |driver: Option<&str>, group: Option<&str>, revision| Found {
            address: "0000:65:00.0".into(),
            revision,
            driver: driver.map(str::to_string),
            iommu_group: group.map(str::to_string),
        };
        for (found, expected) in [
            (found(Some(VFIO), Some("12"), OURS), "pci:0000:65:00.0"),
            (
                found(Some("virtio-pci"), Some("12"), OURS),
                "virtio-pci has it: scripts/bind-vfio.sh 0000:65:00.0",
            ),
            (found(None, Some("12"), OURS), "scripts/bind-vfio.sh 0000:65:00.0 shows"),
            (found(None, None, OURS), "it has no IOMMU"),
            (found(Some(VFIO), Some("12"), OURS + 1), &newer),
        ] {
            let advice = found.advice();
            assert!(advice.contains(expected), "{advice}");
        }
    }
}
