//! Failures of a PCI function of this machine that is used through the kernel's VFIO.

use std::io;

/// What keeps a PCI function from being opened or used, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VfioError {
    /// There is no function at this address.
    #[error("does not exist; `lspci -D` lists those that do")]
    NoFunction,
    /// The function is not a card of this driver.
    #[error(
        "is not ours: its PCI {what} is {found:#06x}, and that of an rnic card of this layout is {expected:#06x}; open another \
         function, or use the driver that was built with the card"
    )]
    NotOurs {
        /// The number that differs.
        what: &'static str,
        /// Its value.
        found: u32,
        /// Its value in a card of this layout.
        expected: u32,
    },
    /// The configuration space reads as all ones.
    #[error(
        "does not answer: its configuration space reads as all ones; check that it is powered, programmed and not removed"
    )]
    Absent,
    /// The kernel has another driver for the function, or none.
    #[error("is bound to {}, not to vfio-pci; run `scripts/bind-vfio.sh --yes` with its address", driver(.found))]
    WrongDriver {
        /// The driver.
        found: Option<String>,
    },
    /// No IOMMU keeps the function from memory of others.
    #[error(
        "is behind no IOMMU that the kernel uses; enable VT-d or AMD-Vi in the firmware and start the kernel with \
         intel_iommu=on (Intel) or without iommu=off (AMD)"
    )]
    NoIommu,
    /// The IOMMU does not keep the function from raising interrupts of others.
    #[error(
        "is behind an IOMMU that does not remap interrupts; enable interrupt remapping in the firmware, or, where every process \
         is trusted, load vfio_iommu_type1 with allow_unsafe_interrupts=1"
    )]
    NoRemapping,
    /// The kernel has no VFIO, or it is not loaded.
    #[error("cannot be opened: there is no {path}; load the module vfio-pci with `modprobe vfio-pci`")]
    NoVfio {
        /// The file that is missing.
        path: String,
    },
    /// The kernel has no `iommufd`, or no files of functions for it.
    #[error(
        "cannot be opened by a file of its own: there is no {path}; load the module iommufd, use a kernel from 6.6 on that is made \
         with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV, or open it through its group"
    )]
    NoIommufd {
        /// The file that is missing.
        path: String,
    },
    /// This user may not open the file.
    #[error(
        "cannot be opened: this user may not open {path}; let its owner be this user, as `scripts/bind-vfio.sh --yes` with \
         `--user` does"
    )]
    NoPermission {
        /// The file.
        path: String,
    },
    /// Another process has opened the function, or another one of its group.
    #[error("is in use: another process has opened {path}; end that process, which `fuser {path}` shows")]
    InUse {
        /// The file of its group.
        path: String,
    },
    /// Functions that share the IOMMU group have drivers of the kernel.
    #[error(
        "shares IOMMU group {group} with {}, which have drivers of the kernel; bind these to vfio-pci too, or plug the card into \
         another slot",
        .others.join(", ")
    )]
    NotViable {
        /// Number of the group.
        group: u32,
        /// Addresses of the others, and their drivers.
        others: Vec<String>,
    },
    /// Memory cannot be locked, as it must be while a card may access it.
    #[error(
        "cannot have {bytes} bytes more, which are locked: {}; raise that with `ulimit -l`, `LimitMEMLOCK=` of a systemd unit, or \
         `memlock` in /etc/security/limits.conf, or free regions",
        lockable(*.limit)
    )]
    LockedMemory {
        /// Size of the memory.
        bytes: usize,
        /// Most bytes that this process may lock; `None` if there is no such limit.
        limit: Option<u64>,
    },
    /// The kernel keeps no more mappings.
    #[error(
        "has all the mappings that the kernel keeps for it{}; free regions or make fewer, larger ones, or raise \
         dma_entry_limit of the module vfio_iommu_type1",
        number(*.most)
    )]
    TooManyMappings {
        /// How many those are, if the kernel has said so.
        most: Option<u32>,
    },
    /// The IOMMU cannot map pages of 4 KiB.
    #[error(
        "is behind an IOMMU whose pages have the sizes {page_sizes:#x}, and 4096 is none of them; use another machine"
    )]
    PageSizes {
        /// Sizes, one bit each.
        page_sizes: u64,
    },
    /// What the kernel says contradicts itself.
    #[error(
        "is described by the kernel in a way that cannot be: {what} is {found:#x}; report this with the kernel's version"
    )]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Its value.
        found: u64,
    },
    /// A call failed in another way.
    #[error("failed at {what}: {why}; see the messages of the kernel")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// Error of the operating system.
        why: String,
    },
}

impl VfioError {
    /// A call failed.
    pub(crate) fn failed(what: &'static str, error: &io::Error) -> Self {
        Self::Failed { what, why: error.to_string() }
    }
}

fn driver(found: &Option<String>) -> String {
    found.as_ref().map_or("no driver".to_string(), |name| format!("the driver {name}"))
}

fn lockable(limit: Option<u64>) -> String {
    let limited = |bytes| format!("this process may lock {bytes} bytes, of all its cards together");
    limit.map_or("the machine has no more, or an outer limit is lower".to_string(), limited)
}

fn number(most: Option<u32>) -> String {
    most.map_or(String::new(), |most| format!(", {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_found_and_what_to_do() {
        let path = || "/dev/vfio/7".to_string();
        for (error, found, remedy) in [
            (VfioError::NoFunction, "does not exist", "lspci -D"),
            (
                VfioError::NotOurs { what: "device", found: 0x10f1, expected: 0x10f0 },
                "its PCI device is 0x10f1",
                "0x10f0; open another function",
            ),
            (VfioError::Absent, "all ones", "powered"),
            (
                VfioError::WrongDriver { found: Some("ice".into()) },
                "bound to the driver ice",
                "bind-vfio.sh --yes",
            ),
            (VfioError::WrongDriver { found: None }, "bound to no driver", "bind-vfio.sh --yes"),
            (VfioError::NoIommu, "no IOMMU", "intel_iommu=on"),
            (VfioError::NoRemapping, "does not remap interrupts", "allow_unsafe_interrupts"),
            (VfioError::NoVfio { path: path() }, "there is no /dev/vfio/7", "modprobe vfio-pci"),
            (
                VfioError::NoIommufd { path: "/dev/iommu".into() },
                "there is no /dev/iommu",
                "through its group",
            ),
            (VfioError::NoPermission { path: path() }, "may not open /dev/vfio/7", "--user"),
            (
                VfioError::InUse { path: path() },
                "another process has opened /dev/vfio/7",
                "fuser /dev/vfio/7",
            ),
            (
                VfioError::NotViable {
                    group: 7,
                    others: vec!["0000:65:00.1 (ice)".into(), "0000:65:00.2 (ice)".into()],
                },
                "group 7 with 0000:65:00.1 (ice), 0000:65:00.2 (ice)",
                "another slot",
            ),
            (
                VfioError::LockedMemory { bytes: 8192, limit: Some(65536) },
                "8192 bytes more, which are locked: this process may lock 65536 bytes",
                "ulimit -l",
            ),
            (
                VfioError::LockedMemory { bytes: 8192, limit: None },
                "the machine has no more",
                "LimitMEMLOCK=",
            ),
            (VfioError::TooManyMappings { most: Some(65535) }, "for it, 65535;", "dma_entry_limit"),
            (VfioError::TooManyMappings { most: None }, "keeps for it;", "dma_entry_limit"),
            (VfioError::PageSizes { page_sizes: 0x10000 }, "sizes 0x10000", "another machine"),
            (VfioError::Malformed { what: "a range", found: 9 }, "a range is 0x9", "report"),
            (
                VfioError::failed("a reset", &io::Error::from_raw_os_error(5)),
                "at a reset: Input/output error",
                "kernel",
            ),
        ] {
            let text = error.to_string();
            let (at, to_do) = (text.find(found), text.find(remedy));
            assert!(at.is_some() && to_do.is_some(), "{text}");
        }
    }
}
