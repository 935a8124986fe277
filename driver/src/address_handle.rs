//! Address handles: paths to peers, stored on the card.

use crate::device::NewObject;
use crate::encoding::mac_number;
use crate::error::{Error, check_option};
use crate::protection_domain::{ProtectionDomain, ProtectionDomainShared};
use crate::sync::lock;
use rnic_layout::admin::{Body, CommandOpcode, CreateAddressHandle};
use rnic_layout::path::{Gid, source_port};
use std::fmt;
use std::sync::Arc;

/// Path to a peer: the fields of the Ethernet, VLAN and IP headers. The caller resolves it; the driver consults no neighbour
/// or routing table (protocol 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// IP address of the peer. An IPv4 address is written `::ffff:a.b.c.d`, and selects IPv4 packets.
    pub destination: Gid,
    /// MAC address of the peer, or of the next router.
    pub destination_mac: [u8; 6],
    /// Index of the source address in [`Options::addresses`](crate::Options::addresses).
    pub source_index: u8,
    /// Tag control information (PCP, DEI, VID) of the 802.1Q tag, or `None` for untagged frames.
    pub vlan: Option<u16>,
    /// IPv6 traffic class, or IPv4 type of service.
    pub traffic_class: u8,
    /// IPv6 hop limit, or IPv4 time to live.
    pub hop_limit: u8,
    /// Flow label, 20 bits. The UDP source port is derived from it, so it selects among equal-cost paths.
    pub flow_label: u32,
}

impl Path {
    /// Path from the first source address, untagged, with a hop limit of 64; traffic class and flow label are zero.
    pub const fn new(destination: Gid, destination_mac: [u8; 6]) -> Self {
        Self {
            destination,
            destination_mac,
            source_index: 0,
            vlan: None,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        }
    }
}

struct AddressHandleShared {
    domain: Arc<ProtectionDomainShared>,
    number: u32,
}

impl Drop for AddressHandleShared {
    fn drop(&mut self) {
        if self.domain.destroy(CommandOpcode::DestroyAddressHandle, self.number, &[]) {
            lock(&self.domain.device.ids).address_handles.free(self.number);
        }
    }
}

/// Address handle: a path that is stored on the card. Clones are cheap and refer to the same handle, which is destroyed with
/// the last of them. A queue pair copies the path when it goes to RTR, and does not keep the handle.
#[derive(Clone)]
pub struct AddressHandle {
    shared: Arc<AddressHandleShared>,
}

impl ProtectionDomain {
    /// Creates an address handle.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] if the path names a source address that does not exist, [`Error::Exhausted`] if all address handles
    /// are in use, [`Error::Impossible`] if a field of the path is out of range, or [`Error::Command`] if the card refuses.
    pub fn create_address_handle(&self, path: &Path) -> Result<AddressHandle, Error> {
        AddressHandle::create(&self.shared, path)
    }
}

impl AddressHandle {
    pub(crate) fn create(domain: &Arc<ProtectionDomainShared>, path: &Path) -> Result<Self, Error> {
        let device = &domain.device;
        let addresses = device.options.addresses.len().max(1) as u64;
        check_option("path.source_index", path.source_index.into(), 0, addresses - 1)?;
        let body = CreateAddressHandle {
            domain: domain.number,
            is_ipv6: path.destination.to_ipv4().is_none(),
            vlan_present: path.vlan.is_some(),
            source_address_index: path.source_index,
            vlan_control: path.vlan.unwrap_or(0),
            source_port: source_port(path.flow_label),
            destination_mac: mac_number(path.destination_mac),
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            destination_address: path.destination.0,
            flow_label: path.flow_label,
        };
        let number = lock(&device.ids).address_handles.allocate_lowest()?;
        let object = NewObject {
            opcode: CommandOpcode::CreateAddressHandle,
            number,
            body: Body::AddressHandle(body),
            memory: &[],
        };
        domain.create(object, |ids| {
            ids.address_handles.free(number);
        })?;
        Ok(Self { shared: Arc::new(AddressHandleShared { domain: Arc::clone(domain), number }) })
    }

    /// Number of the address handle on the card.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    pub(crate) fn domain(&self) -> &Arc<ProtectionDomainShared> {
        &self.shared.domain
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddressHandle({})", self.number())
    }
}
