//! Paths to peers, and the handles under which the card knows them.

use crate::device::mac_number;
use crate::error::{Error, check_option};
use crate::protection_domain::ProtectionDomainShared;
use crate::sync::lock;
use rnic_layout::admin::{Body, CommandOpcode, CreateAddressHandle};
use rnic_layout::path::{Gid, source_port};
use std::fmt;
use std::sync::Arc;

/// Everything that a frame to a peer needs, resolved by the caller: this driver asks no neighbour table (protocol 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Address of the peer. IPv4 addresses stand as `::ffff:a.b.c.d`, and make frames IPv4.
    pub destination: Gid,
    /// Station address of the peer, or of the router on the way.
    pub destination_mac: [u8; 6],
    /// Own address to send from, by its place in `Options::addresses`.
    pub source_index: u8,
    /// Tag control information (PCP, DEI, VID) if frames carry an 802.1Q tag.
    pub vlan: Option<u16>,
    /// Traffic class of IPv6, or type of service of IPv4.
    pub traffic_class: u8,
    /// Hop limit of IPv6, or time to live of IPv4.
    pub hop_limit: u8,
    /// Flow label, 20 bits. It also chooses the UDP source port, and with it the way through the network.
    pub flow_label: u32,
}

impl Path {
    /// A path without VLAN, from the first own address.
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
        let device = &self.domain.device;
        device.end(CommandOpcode::DestroyAddressHandle, self.number);
        lock(&device.ids).address_handles.free(self.number);
    }
}

/// A path that the card knows. Handles are cheap to clone; the card forgets the path with the last of them. Queue pairs
/// copy it, and do not keep it.
#[derive(Clone)]
pub struct AddressHandle {
    shared: Arc<AddressHandleShared>,
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
        let created = device.execute(CommandOpcode::CreateAddressHandle, number, Body::AddressHandle(body));
        if let Err(error) = created {
            lock(&device.ids).address_handles.free(number);
            return Err(error);
        }
        Ok(Self { shared: Arc::new(AddressHandleShared { domain: Arc::clone(domain), number }) })
    }

    /// Number of the handle on the card.
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
