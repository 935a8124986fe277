//! TAP devices: network interfaces of this machine whose other end is a process.
//!
//! What the kernel sends on the interface is a frame that the process reads, and a frame that it writes is one that the kernel
//! receives. Both are whole frames without FCS; the card's are padded, the kernel's may be short.
use crate::socket_file::socket;
use rustix::net::SocketType;
use rustix::net::netdevice::name_to_index;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use thiserror::Error;
use tun_rs::{DeviceBuilder, Layer};

/// Largest IP packet that a card sends or receives in one frame: a path MTU of 4096 bytes and the headers of RoCEv2, rounded up.
const MTU: u16 = 4500;

/// Why a TAP device cannot be opened, and what to do.
#[derive(Debug, Error)]
pub enum TapError {
    /// The process may not make network interfaces.
    #[error(
        "no permission to use the TAP device {name}: run as root, or let root make it for you with \
         `ip tuntap add dev {name} mode tap user $USER && ip link set {name} mtu {MTU} up`"
    )]
    Permission {
        /// Name of the device.
        name: String,
    },
    /// The kernel has no TAP devices.
    #[error("this machine has no /dev/net/tun: load the kernel's module with `modprobe tun`")]
    NoDriver,
    /// A process has the device.
    #[error("the TAP device {name} is in use by another process: end that, or name another device")]
    InUse {
        /// Name of the device.
        name: String,
    },
    /// There is another interface of this name, or the name is none.
    #[error(
        "{name} cannot be a TAP device: a name has 1 to 15 bytes without %, and no other interface must have it"
    )]
    Name {
        /// Name of the device.
        name: String,
    },
    /// The operating system refuses for another reason.
    #[error("the TAP device {name}: {error}")]
    Io {
        /// Name of the device.
        name: String,
        /// What the operating system says.
        error: io::Error,
    },
}

/// Opens a TAP device, which is made if there is none of this name, and ends with the last handle then. Its interface is switched
/// on, and its MTU raised to what a card sends, if the process may do that; otherwise both are left as they are.
///
/// # Errors
/// A [`TapError`] that says what to do.
pub fn open(name: &str) -> Result<OwnedFd, TapError> {
    let name = name.to_string();
    // The kernel would choose a name, or a number at the place of `%d`.
    if name.is_empty() || name.len() > 15 || name.contains('%') {
        return Err(TapError::Name { name });
    }
    let device = DeviceBuilder::new().name(&name).layer(Layer::L2).inherit_enable_state().build_sync();
    let device = match device {
        Ok(device) => device,
        Err(error) => {
            return Err(match (error.kind(), error.raw_os_error()) {
                (ErrorKind::PermissionDenied, _) => TapError::Permission { name },
                (ErrorKind::NotFound, _) | (_, Some(NO_DEVICE)) => TapError::NoDriver,
                (ErrorKind::ResourceBusy, _) => TapError::InUse { name },
                (ErrorKind::InvalidInput, _) => TapError::Name { name },
                _ => TapError::Io { name, error },
            });
        }
    };
    if device.mtu().is_ok_and(|mtu| mtu < MTU) {
        let _ = device.set_mtu(MTU);
    }
    let _ = device.enabled(true);
    device.as_fd().try_clone_to_owned().map_err(|error| TapError::Io { name, error })
}

/// Returns whether this machine has a network interface of a name.
pub fn exists(name: &str) -> bool {
    socket(SocketType::STREAM).is_ok_and(|socket| name_to_index(&socket, name).is_ok())
}

/// The error number of a device node without a driver.
const NO_DEVICE: i32 = rustix::io::Errno::NODEV.raw_os_error();

#[cfg(test)]
mod tests {
    use crate::wire::datagram::Datagrams;
    use crate::wire::{Frame, Station};
    use std::net::UdpSocket;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// Set in the process that has a network of its own.
    const ALONE: &str = "RNIC_TAP_ALONE";
    const NAME: &str = "rnic0";
    const TEST: &str = "wire::tap::tests::the_kernel_and_the_station_exchange_frames";
    /// Bound of each wait.
    const PATIENCE: Duration = Duration::from_secs(20);
    const ARP: [u8; 2] = [8, 6];
    /// MAC address of the station, and the ends of the IPv4 addresses 10.9.0.x of the kernel and of the station.
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const KERNEL: [u8; 4] = [10, 9, 0, 1];
    const STATION: [u8; 4] = [10, 9, 0, 2];

    /// An ARP request of the station for an address of the kernel, too short for Ethernet.
    fn request() -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend(MAC);
        frame.extend(ARP);
        frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend(MAC);
        frame.extend(STATION);
        frame.extend([0; 6]);
        frame.extend(KERNEL);
        frame
    }

    /// Waits for an ARP packet of an operation.
    fn arp(station: &mut Datagrams, operation: u8) -> Frame {
        let deadline = Instant::now() + PATIENCE;
        let mut now_ps = 0;
        while Instant::now() < deadline {
            // What else the kernel sends on a new interface does not matter.
            match station.transmit(now_ps) {
                Some(frame) if frame.bytes[12..14] == ARP && frame.bytes[21] == operation => return frame,
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(1)),
            }
            now_ps = now_ps.max(station.wakes_ps().expect("the device stays"));
        }
        panic!("no ARP packet of operation {operation} within {PATIENCE:?}");
    }

    /// Runs in a network of its own, whose only other interface is the loopback.
    fn alone() {
        let mut station = Datagrams::tap(NAME).unwrap();
        let error = Datagrams::tap(NAME).unwrap_err().to_string();
        assert!(error.contains("in use by another process"), "{error}");
        let error = Datagrams::tap("lo").unwrap_err().to_string();
        assert!(error.contains("lo cannot be a TAP device"), "{error}");
        let status = Command::new("ip").args(["address", "add", "10.9.0.1/24", "dev", NAME]).status();
        assert!(status.unwrap().success());

        station.receive(0, &Frame::new(request()));
        let answer = arp(&mut station, 2);
        assert_eq!((&answer.bytes[..6], &answer.bytes[28..32]), (&MAC[..], &KERNEL[..]));
        assert_eq!((answer.bytes.len(), station.lost()), (60, 0), "the kernel's frame is padded");

        UdpSocket::bind("10.9.0.1:0").unwrap().send_to(&[1], "10.9.0.3:9").unwrap();
        let asked = arp(&mut station, 1);
        assert_eq!(asked.bytes[38..42], [10, 9, 0, 3]);

        // An interface that is switched off takes no frames.
        assert!(Command::new("ip").args(["link", "set", NAME, "down"]).status().unwrap().success());
        station.receive(0, &Frame::new(request()));
        assert_eq!(station.lost(), 1);

        // A device that is removed is found again when somebody makes it, and not before.
        let ip = |words: &str| {
            let status = Command::new("ip").args(words.split(' ')).status();
            assert!(status.unwrap().success(), "ip {words}");
        };
        ip(&format!("link delete {NAME}"));
        station.attend(Instant::now());
        assert!(!station.is_connected());
        ip(&format!("tuntap add dev {NAME} mode tap"));
        station.attend(Instant::now());
        assert!(station.is_connected());
    }

    #[test]
    fn the_kernel_and_the_station_exchange_frames() {
        if std::env::var_os(ALONE).is_some() {
            return alone();
        }
        // As root of a user namespace too, where users may make one.
        let program = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net"]).arg(program).args(["--exact", TEST]);
        let output = command.env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        for name in ["", "a-name-of-16-byte", "rnic%d"] {
            let error = super::open(name).unwrap_err().to_string();
            assert!(error.contains("1 to 15 bytes"), "{error}");
        }
    }
}
