//! What this machine says about a PCI function before it is opened, in sysfs, and what a failure to open it means, by its group or by
//! its own file.
//!
//! A function is looked at before it is opened, because the kernel resets what it opens: nobody else's function is to be reset.

use crate::identity::{HEADER_BYTES, Identity, identity};
use crate::pci_address::PciAddress;
use crate::vfio_error::VfioError;
use iommufd_ioctls::IommufdError;
use rustix::fs::{Access as RwAccess, access};
use std::fs::{File, read_dir, read_link, read_to_string};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use vfio_ioctls::VfioError as CallError;

/// Driver of the kernel that gives functions to processes.
const DRIVER: &str = "vfio-pci";
/// Drivers that a function may have beside one that a process has: those that do no DMA.
const HARMLESS: [&str; 3] = [DRIVER, "pci-stub", "pcieport"];
/// Name of a group that VFIO has made without an IOMMU.
const GROUP_WITHOUT_IOMMU: &str = "vfio-noiommu";
/// File of the container.
const CONTAINER: &str = "/dev/vfio/vfio";
/// File of `iommufd`.
const IOMMUFD: &str = "/dev/iommu";

/// A machine, by the root of its file system, which is another one in tests.
#[derive(Clone, Debug)]
pub(super) struct Machine(pub(super) PathBuf);

/// A function that can be opened, as far as sysfs says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its folder in sysfs.
    pub(super) folder: PathBuf,
    /// Number of its IOMMU group.
    pub(super) group: u32,
    /// The file that it has of its own, if the kernel has such files.
    pub(super) file: Option<PathBuf>,
}

impl Found {
    /// Returns whether this user may open the function by its own file, and not through its group.
    pub(super) fn opens_by_itself_only(&self) -> bool {
        let may = |path: &Path| access(path, RwAccess::READ_OK | RwAccess::WRITE_OK).is_ok();
        let by_itself = self.file.as_ref().is_some_and(|file| may(file)) && may(Path::new(IOMMUFD));
        by_itself && !may(Path::new(&group_file(self.group)))
    }
}

/// The last part of what a link refers to; `None` if there is no link.
fn target(link: &Path) -> Option<String> {
    Some(read_link(link).ok()?.file_name()?.to_str()?.to_string())
}

impl Machine {
    fn functions(&self) -> PathBuf {
        self.0.join("sys/bus/pci/devices")
    }

    /// Finds a function, and checks that it is ours, behind an IOMMU, and bound to `vfio-pci`.
    pub(super) fn examine(&self, address: PciAddress) -> Result<Found, VfioError> {
        let folder = self.functions().join(address.to_string());
        let mut config = [0; HEADER_BYTES];
        match File::open(folder.join("config")).and_then(|mut file| file.read_exact(&mut config)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(VfioError::NoFunction),
            Err(error) => {
                return Err(VfioError::failed("a read of its configuration space in sysfs", &error));
            }
        }
        match identity(&config) {
            Identity::Ours => {}
            Identity::Absent => return Err(VfioError::Absent),
            Identity::Other { what, found, expected } => {
                return Err(VfioError::NotOurs { what, found, expected });
            }
        }
        let group = target(&folder.join("iommu_group")).and_then(|name| name.parse().ok());
        let group = group.ok_or(VfioError::NoIommu)?;
        let name = self.0.join(format!("sys/kernel/iommu_groups/{group}/name"));
        if read_to_string(name).is_ok_and(|name| name.trim() == GROUP_WITHOUT_IOMMU) {
            return Err(VfioError::NoIommu);
        }
        match target(&folder.join("driver")) {
            Some(driver) if driver == DRIVER => {
                let file = self.own_file(&folder);
                Ok(Found { folder, group, file })
            }
            found => Err(VfioError::WrongDriver { found }),
        }
    }

    /// The file that a function in this folder has of its own.
    fn own_file(&self, folder: &Path) -> Option<PathBuf> {
        let entry = read_dir(folder.join("vfio-dev")).ok()?.next()?.ok()?;
        Some(self.0.join("dev/vfio/devices").join(entry.file_name()))
    }

    /// Functions of a group with drivers that keep it from processes, as `address (driver)`.
    pub(super) fn others(&self, group: u32) -> Vec<String> {
        let Ok(entries) = read_dir(self.0.join(format!("sys/kernel/iommu_groups/{group}/devices"))) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut others: Vec<String> = names
            .filter_map(|name| {
                let driver = target(&self.functions().join(&name).join("driver"))?;
                (!HARMLESS.contains(&driver.as_str())).then(|| format!("{name} ({driver})"))
            })
            .collect();
        others.sort();
        others
    }
}

/// The file of a group.
fn group_file(group: u32) -> String {
    format!("/dev/vfio/{group}")
}

/// What the failure of a file to open means.
fn refused(error: &io::Error, path: String) -> VfioError {
    match error.kind() {
        ErrorKind::NotFound => VfioError::NoVfio { path },
        ErrorKind::PermissionDenied => VfioError::NoPermission { path },
        ErrorKind::ResourceBusy => VfioError::InUse { path },
        _ => VfioError::failed("the opening of its file in /dev/vfio", error),
    }
}

/// What the failure to open a function means. `others` finds those that keep its group from processes.
pub(super) fn explain(error: &CallError, found: &Found, others: impl FnOnce() -> Vec<String>) -> VfioError {
    let group = found.group;
    let path = group_file(group);
    let own = || found.file.as_ref().map_or(path.clone(), |file| file.display().to_string());
    match error {
        CallError::NewVfioIommufd(IommufdError::OpenIommufd(error)) => match error.kind() {
            ErrorKind::PermissionDenied => VfioError::NoPermission { path: IOMMUFD.to_string() },
            _ => VfioError::NoIommufd { path: IOMMUFD.to_string() },
        },
        CallError::InvalidVfioDev => VfioError::NoIommufd { path: "/dev/vfio/devices".to_string() },
        CallError::OpenDeviceCdev(error) if error.kind() == ErrorKind::NotFound => {
            VfioError::NoIommufd { path: own() }
        }
        CallError::OpenDeviceCdev(error) => refused(error, own()),
        CallError::VfioDeviceBindIommufd(error) if error.errno() == EBUSY => VfioError::InUse { path: own() },
        CallError::VfioDeviceAttachIommufdPt(error) if error.errno() == EPERM => VfioError::NoRemapping,
        CallError::VfioDeviceAttachIommufdPt(error) if error.errno() == ENODEV => VfioError::NoIommu,
        CallError::VfioDeviceAttachIommufdPt(error) if error.errno() == EBUSY => {
            VfioError::NotViable { group, others: others() }
        }
        // The file is there without the module, and has no device then.
        CallError::OpenContainer(error) if error.raw_os_error() == Some(ENODEV) => {
            VfioError::NoVfio { path: CONTAINER.to_string() }
        }
        CallError::OpenContainer(error) => refused(error, CONTAINER.to_string()),
        CallError::OpenGroup(error, _) => refused(error, path),
        CallError::GroupViable => VfioError::NotViable { group, others: others() },
        CallError::VfioExtension | CallError::VfioType1V2 => VfioError::NoIommu,
        CallError::ContainerSetIOMMU(error) if error.errno() == EPERM => VfioError::NoRemapping,
        CallError::ContainerSetIOMMU(error) if error.errno() == ENODEV => VfioError::NoIommu,
        CallError::GroupGetDeviceFD(error) if error.errno() == EBUSY => VfioError::InUse { path },
        other => VfioError::Failed { what: "its opening", why: other.to_string() },
    }
}

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const ENOSPC: i32 = 28;

/// What the refusal of a mapping means. `limit` is how many bytes this process may lock, `most` how many mappings the kernel keeps.
pub(super) fn explain_map(
    error: &io::Error,
    bytes: usize,
    limit: Option<u64>,
    most: Option<u32>,
) -> VfioError {
    match error.raw_os_error() {
        Some(ENOMEM) => VfioError::LockedMemory { bytes, limit },
        Some(ENOSPC) => VfioError::TooManyMappings { most },
        _ => VfioError::failed("the mapping of memory", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_layout::pci::config_image;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;
    use vmm_sys_util::errno::Error as Errno;

    const ADDRESS: &str = "0000:65:00.0";

    /// A machine with functions: address, driver, group.
    fn machine(functions: &[(&str, Option<&str>, Option<u32>)]) -> (TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path().join("sys");
        for &(address, driver, group) in functions {
            let folder = sys.join("bus/pci/devices").join(address);
            create_dir_all(&folder).unwrap();
            write(folder.join("config"), config_image(0)).unwrap();
            if let Some(driver) = driver {
                symlink(format!("../../../bus/pci/drivers/{driver}"), folder.join("driver")).unwrap();
            }
            if let Some(group) = group {
                symlink(format!("../../../kernel/iommu_groups/{group}"), folder.join("iommu_group")).unwrap();
                let devices = sys.join(format!("kernel/iommu_groups/{group}/devices"));
                create_dir_all(&devices).unwrap();
                symlink(&folder, devices.join(address)).unwrap();
            }
        }
        let machine = Machine(root.path().to_path_buf());
        (root, machine)
    }

    fn examine(machine: &Machine) -> Result<Found, VfioError> {
        machine.examine(ADDRESS.parse().unwrap())
    }

    #[test]
    fn a_function_that_is_bound_and_ours_is_found() {
        let (root, machine) = machine(&[(ADDRESS, Some("vfio-pci"), Some(17))]);
        let folder = root.path().join("sys/bus/pci/devices").join(ADDRESS);
        assert_eq!(examine(&machine), Ok(Found { folder: folder.clone(), group: 17, file: None }));
        create_dir_all(folder.join("vfio-dev/vfio3")).unwrap();
        let file = Some(root.path().join("dev/vfio/devices/vfio3"));
        let found = examine(&machine).unwrap();
        assert_eq!(found, Found { folder, group: 17, file });
        assert!(!found.opens_by_itself_only(), "it is not there");
    }

    #[test]
    fn a_function_is_not_opened_before_it_is_known() {
        let one = |driver, group| machine(&[(ADDRESS, driver, group)]);
        let other = |driver: Option<&str>| VfioError::WrongDriver { found: driver.map(str::to_string) };
        for ((_root, machine), expected) in [
            (machine(&[("0000:65:00.1", Some("vfio-pci"), Some(1))]), VfioError::NoFunction),
            (one(Some("ice"), Some(1)), other(Some("ice"))),
            (one(None, Some(1)), other(None)),
            (one(Some("vfio-pci"), None), VfioError::NoIommu),
            (one(None, None), VfioError::NoIommu),
        ] {
            assert_eq!(examine(&machine), Err(expected));
        }
        let (root, machine) = one(Some("vfio-pci"), Some(3));
        write(root.path().join("sys/kernel/iommu_groups/3/name"), "vfio-noiommu\n").unwrap();
        assert_eq!(examine(&machine), Err(VfioError::NoIommu));
        write(root.path().join("sys/kernel/iommu_groups/3/name"), "other\n").unwrap();
        assert!(examine(&machine).is_ok());
    }

    #[test]
    fn a_function_is_known_by_its_configuration_space() {
        let (root, machine) = machine(&[(ADDRESS, Some("vfio-pci"), Some(1))]);
        let file = root.path().join("sys/bus/pci/devices").join(ADDRESS).join("config");
        let mut config = config_image(0);
        config[2] = 0x12;
        write(&file, config).unwrap();
        let expected = VfioError::NotOurs { what: "device", found: 0x1012, expected: 0x10f0 };
        assert_eq!(examine(&machine), Err(expected));
        write(&file, [0xff; 64]).unwrap();
        assert_eq!(examine(&machine), Err(VfioError::Absent));
        write(&file, [0; 63]).unwrap();
        assert!(matches!(examine(&machine), Err(VfioError::Failed { .. })));
    }

    #[test]
    fn those_who_keep_a_group_are_named() {
        let (_root, machine) = machine(&[
            (ADDRESS, Some("vfio-pci"), Some(5)),
            ("0000:65:00.3", Some("ice"), Some(5)),
            ("0000:65:00.1", Some("nvme"), Some(5)),
            ("0000:65:00.2", None, Some(5)),
            ("0000:64:00.0", Some("pcieport"), Some(5)),
            ("0000:66:00.0", Some("ice"), Some(6)),
        ]);
        assert_eq!(machine.others(5), ["0000:65:00.1 (nvme)", "0000:65:00.3 (ice)"]);
        assert!(machine.others(7).is_empty());
    }

    #[test]
    fn a_failure_to_open_is_explained() {
        let io = io::Error::from_raw_os_error;
        let group = || "/dev/vfio/9".to_string();
        let found = Found { folder: "/sys/f".into(), group: 9, file: Some("/dev/vfio/devices/vfio3".into()) };
        let own = || "/dev/vfio/devices/vfio3".to_string();
        let iommufd = || IOMMUFD.to_string();
        let no_files = "/dev/vfio/devices".to_string();
        let container = || CONTAINER.to_string();
        for (error, expected) in [
            (CallError::OpenContainer(io(2)), VfioError::NoVfio { path: container() }),
            (CallError::OpenContainer(io(ENODEV)), VfioError::NoVfio { path: container() }),
            (CallError::OpenContainer(io(13)), VfioError::NoPermission { path: container() }),
            (CallError::OpenGroup(io(2), "9".into()), VfioError::NoVfio { path: group() }),
            (CallError::OpenGroup(io(13), "9".into()), VfioError::NoPermission { path: group() }),
            (CallError::OpenGroup(io(EPERM), "9".into()), VfioError::NoPermission { path: group() }),
            (CallError::OpenGroup(io(EBUSY), "9".into()), VfioError::InUse { path: group() }),
            (CallError::GroupGetDeviceFD(Errno::new(EBUSY)), VfioError::InUse { path: group() }),
            (CallError::VfioExtension, VfioError::NoIommu),
            (CallError::ContainerSetIOMMU(Errno::new(ENODEV)), VfioError::NoIommu),
            (CallError::ContainerSetIOMMU(Errno::new(EPERM)), VfioError::NoRemapping),
            (
                CallError::NewVfioIommufd(IommufdError::OpenIommufd(io(2))),
                VfioError::NoIommufd { path: iommufd() },
            ),
            (
                CallError::NewVfioIommufd(IommufdError::OpenIommufd(io(13))),
                VfioError::NoPermission { path: iommufd() },
            ),
            (CallError::InvalidVfioDev, VfioError::NoIommufd { path: no_files }),
            (CallError::OpenDeviceCdev(io(2)), VfioError::NoIommufd { path: own() }),
            (CallError::OpenDeviceCdev(io(13)), VfioError::NoPermission { path: own() }),
            (CallError::OpenDeviceCdev(io(EBUSY)), VfioError::InUse { path: own() }),
            (CallError::VfioDeviceBindIommufd(Errno::new(EBUSY)), VfioError::InUse { path: own() }),
            (CallError::VfioDeviceAttachIommufdPt(Errno::new(EPERM)), VfioError::NoRemapping),
            (CallError::VfioDeviceAttachIommufdPt(Errno::new(ENODEV)), VfioError::NoIommu),
            (
                CallError::VfioDeviceAttachIommufdPt(Errno::new(EBUSY)),
                VfioError::NotViable { group: 9, others: vec!["other".into()] },
            ),
            (CallError::GroupViable, VfioError::NotViable { group: 9, others: vec!["other".into()] }),
        ] {
            assert_eq!(explain(&error, &found, || vec!["other".into()]), expected, "{error}");
        }
        for error in [
            CallError::OpenGroup(io(5), "9".into()),
            CallError::ContainerSetIOMMU(Errno::new(5)),
            CallError::GroupGetDeviceFD(Errno::new(5)),
            CallError::VfioDeviceGetInfoPCI,
            CallError::VfioDeviceBindIommufd(Errno::new(22)),
            CallError::NewVfioIommufd(IommufdError::IommuIoasAlloc(Errno::new(ENOMEM))),
        ] {
            let explained = explain(&error, &found, || panic!("the group is viable"));
            assert!(matches!(explained, VfioError::Failed { .. }), "{error}");
        }
    }

    #[test]
    fn a_refused_mapping_is_explained() {
        let explained = |errno| explain_map(&io::Error::from_raw_os_error(errno), 8192, Some(65536), Some(7));
        assert_eq!(explained(ENOMEM), VfioError::LockedMemory { bytes: 8192, limit: Some(65536) });
        assert_eq!(explained(ENOSPC), VfioError::TooManyMappings { most: Some(7) });
        assert!(matches!(explained(22), VfioError::Failed { .. }));
    }
}
