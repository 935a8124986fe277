//! Address handles: paths to peers, stored on the card.

use crate::device::{IdAllocators, NewObject};
use crate::encoding::mac_number;
use crate::error::{Error, check_option};
use crate::path::Path;
use crate::protection_domain::{ProtectionDomain, ProtectionDomainShared};
use crate::sync::lock;
use rnic_layout::admin::{Body, CommandOpcode, CreateAddressHandle};
use rnic_layout::path::{Gid, source_port};
use std::fmt;
use std::sync::Arc;

/// The VID in the tag control information of an 802.1Q tag. All ones are reserved.
const VID_MASK: u16 = 0xfff;

/// Name of the version of IP that an address selects.
fn family(gid: Gid) -> &'static str {
    if gid.to_ipv4().is_some() { "IPv4" } else { "IPv6" }
}

/// Frees the number of a handle that the card does not have.
fn free(ids: &mut IdAllocators, number: u32) {
    ids.paths.remove(&number);
    ids.address_handles.free(number);
}

struct AddressHandleShared {
    domain: Arc<ProtectionDomainShared>,
    number: u32,
}

impl Drop for AddressHandleShared {
    fn drop(&mut self) {
        if self.domain.destroy(CommandOpcode::DestroyAddressHandle, self.number, &[]) {
            free(&mut lock(&self.domain.device.ids), self.number);
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
    /// [`Error::Option`] if the path names a source address that does not exist, or the VID that 802.1Q reserves,
    /// [`Error::Families`] if source address and destination are not of one version of IP, [`Error::Exhausted`] if all address handles
    /// are in use, [`Error::Impossible`] if a field of the path is out of range, or [`Error::Command`] if the card refuses.
    pub fn create_address_handle(&self, path: &Path) -> Result<AddressHandle, Error> {
        AddressHandle::create(&self.shared, path)
    }
}

impl AddressHandle {
    pub(crate) fn create(domain: &Arc<ProtectionDomainShared>, path: &Path) -> Result<Self, Error> {
        let device = &domain.device;
        let addresses = device.options.source_addresses();
        check_option("path.source_index", path.source_index.into(), 0, addresses.len() as u64 - 1)?;
        let [source, destination] = [addresses[usize::from(path.source_index)], path.destination].map(family);
        if source != destination {
            return Err(Error::Families {
                source_index: path.source_index,
                source_family: source,
                destination,
            });
        }
        let vid = path.vlan.map_or(0, |control| control & VID_MASK);
        check_option("VID of path.vlan", vid.into(), 0, u64::from(VID_MASK) - 1)?;
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
        let number = {
            let ids = &mut *lock(&device.ids);
            let number = ids.address_handles.allocate_lowest()?;
            ids.paths.insert(number, *path);
            number
        };
        let object = NewObject {
            opcode: CommandOpcode::CreateAddressHandle,
            number,
            body: Body::AddressHandle(body),
            memory: &[],
        };
        domain.create(object, |ids| free(ids, number))?;
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
