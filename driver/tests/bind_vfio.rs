//! The script that binds a function to `vfio-pci`, on the tree of a machine that the test has made.
#![cfg(not(loom))]

use rnic_layout::pci::{DEVICE, SUBSYSTEM, SUBSYSTEM_VENDOR, VENDOR};
use std::fs::{create_dir_all, read_to_string, remove_file, write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ADDRESS: &str = "0000:65:00.0";
const OTHER: &str = "0000:65:00.1";

/// A machine with a card and another function in one IOMMU group.
struct Machine(TempDir);

impl Machine {
    fn new(driver: Option<&str>) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        create_dir_all(machine.path("dev/vfio")).unwrap();
        write(machine.path("dev/vfio/12"), "").unwrap();
        create_dir_all(machine.path("sys/kernel/iommu_groups/12/devices")).unwrap();
        for name in ["vfio-pci", "ice"] {
            create_dir_all(machine.path(&format!("sys/bus/pci/drivers/{name}"))).unwrap();
            write(machine.path(&format!("sys/bus/pci/drivers/{name}/unbind")), "").unwrap();
        }
        write(machine.path("sys/bus/pci/drivers_probe"), "").unwrap();
        for address in [ADDRESS, OTHER] {
            create_dir_all(machine.function(address, "")).unwrap();
            write(machine.function(address, "driver_override"), "(null)\n").unwrap();
            symlink("../../../../kernel/iommu_groups/12", machine.function(address, "iommu_group")).unwrap();
            let member = machine.path(&format!("sys/kernel/iommu_groups/12/devices/{address}"));
            symlink(machine.function(address, ""), member).unwrap();
        }
        let numbers = [
            ("vendor", VENDOR),
            ("device", DEVICE),
            ("subsystem_vendor", SUBSYSTEM_VENDOR),
            ("subsystem_device", SUBSYSTEM),
        ];
        for (file, number) in numbers {
            write(machine.function(ADDRESS, file), format!("{number:#06x}\n")).unwrap();
        }
        if let Some(driver) = driver {
            bind(&machine.function(ADDRESS, "driver"), driver);
        }
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn function(&self, address: &str, file: &str) -> PathBuf {
        self.path("sys/bus/pci/devices").join(address).join(file)
    }

    fn read(&self, path: &str) -> String {
        read_to_string(self.path(path)).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/bind-vfio.sh");
        let mut command = Command::new(script);
        command.args(arguments).env("RNIC_ROOT", self.0.path()).output().unwrap()
    }

    /// Runs the script, which fails. Returns what it says.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Runs the script, which succeeds. Returns what it says, and its warnings.
    fn done(&self, arguments: &[&str]) -> (String, String) {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    /// Does what the kernel does when the address is written to `drivers_probe`: binds the driver that is preferred.
    fn kernel(&self) -> JoinHandle<()> {
        let (probe, link) = (self.path("sys/bus/pci/drivers_probe"), self.function(ADDRESS, "driver"));
        let preferred = self.function(ADDRESS, "driver_override");
        let until = Instant::now() + Duration::from_secs(30);
        spawn(move || {
            while read_to_string(&probe).unwrap().trim() != ADDRESS {
                assert!(Instant::now() < until, "nobody has asked for a driver");
                sleep(Duration::from_millis(2));
            }
            let _ = remove_file(&link);
            bind(&link, read_to_string(&preferred).unwrap().trim());
        })
    }
}

fn bind(link: &Path, driver: &str) {
    symlink(format!("../../drivers/{driver}"), link).unwrap();
}

#[test]
fn by_default_nothing_changes() {
    let machine = Machine::new(Some("ice"));
    let (said, warnings) = machine.done(&[ADDRESS]);
    for line in ["IOMMU group 12, ice", "with --yes:", "the driver ice lets it go", "vfio-pci takes it"] {
        assert!(said.contains(line), "{said}");
    }
    assert!(warnings.is_empty() && !said.contains("ready"), "{said}{warnings}");
    assert_eq!(read_to_string(machine.function(ADDRESS, "driver_override")).unwrap(), "(null)\n");
    assert_eq!(
        machine.read("sys/bus/pci/drivers/ice/unbind") + &machine.read("sys/bus/pci/drivers_probe"),
        ""
    );
}

#[test]
fn a_function_is_bound_and_given_back() {
    let machine = Machine::new(Some("ice"));
    let kernel = machine.kernel();
    let (said, _) = machine.done(&["--yes", "65:00.0"]);
    kernel.join().unwrap();
    assert!(said.ends_with("ready: pci:0000:65:00.0\n"), "{said}");
    assert_eq!(read_to_string(machine.function(ADDRESS, "driver_override")).unwrap(), "vfio-pci\n");
    assert_eq!(machine.read("sys/bus/pci/drivers/ice/unbind"), format!("{ADDRESS}\n"));

    // A second time there is nothing left to do.
    write(machine.path("sys/bus/pci/drivers_probe"), "").unwrap();
    let (said, _) = machine.done(&["--yes", ADDRESS]);
    assert!(said.ends_with("ready: pci:0000:65:00.0\n") && !said.contains("takes it"), "{said}");
    assert_eq!(machine.read("sys/bus/pci/drivers_probe"), "");

    let (said, _) = machine.done(&["--undo", ADDRESS]);
    assert!(said.contains("goes back to the kernel"), "{said}");
    assert_eq!(read_to_string(machine.function(ADDRESS, "driver_override")).unwrap(), "\n");
    assert_eq!(machine.read("sys/bus/pci/drivers/vfio-pci/unbind"), format!("{ADDRESS}\n"));
    assert_eq!(machine.read("sys/bus/pci/drivers_probe"), format!("{ADDRESS}\n"));
}

#[test]
fn a_kernel_that_does_not_bind_is_an_error() {
    let machine = Machine::new(None);
    let said = machine.refused(&["--yes", ADDRESS]);
    assert!(said.contains("has no driver and not vfio-pci"), "{said}");
}

#[test]
fn the_rest_of_the_group_is_named() {
    let machine = Machine::new(Some("vfio-pci"));
    bind(&machine.function(OTHER, "driver"), "nvme");
    let (said, warnings) = machine.done(&["--user", "somebody", ADDRESS]);
    assert!(warnings.contains("0000:65:00.1 of the same group has the driver nvme"), "{warnings}");
    assert!(said.contains("somebody owns /dev/vfio/12") && !said.contains("takes it"), "{said}");
}

#[test]
fn what_is_not_to_be_bound_is_refused() {
    let machine = Machine::new(Some("ice"));
    for (arguments, expected) in [
        (&["0000:66:00.0"][..], "there is no PCI function 0000:66:00.0"),
        (&[OTHER], "0000:65:00.1 is no rnic card"),
        (&["../../etc"], "'../../etc' is no address of a PCI function"),
        (&[], "no function is named"),
        (&[ADDRESS, OTHER], "one function at a time"),
        (&["--force", ADDRESS], "unknown option '--force'"),
        (&["--user"], "--user is followed by no name"),
        (&["--undo", ADDRESS], "has ice, so there is nothing to undo"),
    ] {
        let said = machine.refused(arguments);
        assert!(said.starts_with("error: ") && said.contains(expected), "{said}");
    }
    remove_file(machine.function(ADDRESS, "iommu_group")).unwrap();
    let said = machine.refused(&["--yes", ADDRESS]);
    assert!(said.contains("is behind no IOMMU") && said.contains("intel_iommu=on"), "{said}");
    assert_eq!(read_to_string(machine.function(ADDRESS, "driver_override")).unwrap(), "(null)\n");
}
