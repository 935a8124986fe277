//! The cards of this process, in the order of `RNIC_DEVICE`, and what identifiers take of them.
//!
//! A card is opened by the first identifier that is bound to it. Its context and its protection domain stay until the process ends, as
//! those of rdma-core do: programs use `id->pd` as long as they like.
#![allow(unsafe_code)]

use crate::abi::{self, Gid};
use crate::outcome::{Failure, Outcome};
use crate::verbs::verbs;
use rnic_stand_in::lock;
use std::ffi::{c_int, c_void};
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};

/// Number of the only port.
pub(crate) const PORT: u8 = 1;
/// Index of the GID that is made of the IPv4 address.
pub(crate) const GID_INDEX: u8 = 0;
/// What the GUID of a card of rnic has around its IPv4 address in 10.0.0.0/8: the GUID is made of its MAC address, and that of the IPv4
/// address.
const GUID_PATTERN: ([u8; 3], [u8; 2]) = ([0x00, 0x72, 10], [0xff, 0xfe]);

/// A card that is open.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) context: *mut abi::Context,
    pub(crate) domain: *mut c_void,
    pub(crate) gid: Gid,
    /// Largest path MTU, as the verbs code it.
    pub(crate) mtu: u8,
    /// READs and atomics that the card answers, and that it sends, at a time.
    pub(crate) responder_resources_max: u8,
    pub(crate) initiator_depth_max: u8,
}

/// A card, open or not.
pub(crate) struct Card {
    device: *mut c_void,
    pub(crate) address: Ipv4Addr,
    opened: Mutex<Option<Opened>>,
}

// SAFETY: Functions of the verbs take these pointers in any thread.
unsafe impl Send for Card {}
// SAFETY: As above.
unsafe impl Sync for Card {}

/// The IPv4 address that a GUID, in wire order, holds.
fn address_of(guid: [u8; 8]) -> Option<Ipv4Addr> {
    let [a, b, network, c, d, rest @ ..] = guid;
    let is_ours = ([a, b, network], [c, d]) == GUID_PATTERN;
    is_ours.then(|| Ipv4Addr::new(network, rest[0], rest[1], rest[2]))
}

impl Card {
    fn list() -> Outcome<Vec<Self>> {
        let verbs = verbs()?;
        let mut count = 0;
        // SAFETY: The list is kept, so that its devices stay valid.
        let list = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(Failure::last());
        }
        let devices = (0..count as usize).map(|index| {
            // SAFETY: The list has so many devices.
            unsafe { *list.add(index) }
        });
        let cards = devices.filter_map(|device| {
            // SAFETY: The device is of a list.
            let guid = unsafe { (verbs.ibv_get_device_guid)(device) }.to_ne_bytes();
            Some(Self { device, address: address_of(guid)?, opened: Mutex::new(None) })
        });
        Ok(cards.collect())
    }

    /// The card, which is opened if it is not open yet.
    pub(crate) fn open(&self) -> Outcome<Opened> {
        let mut opened = lock(&self.opened);
        match *opened {
            Some(opened) => Ok(opened),
            None => Ok(*opened.insert(self.open_now()?)),
        }
    }

    fn open_now(&self) -> Outcome<Opened> {
        let verbs = verbs()?;
        // SAFETY: The device is of a list. The verbs library says why it cannot be opened.
        let context = unsafe { (verbs.ibv_open_device)(self.device) };
        if context.is_null() {
            return Err(Failure::last());
        }
        // SAFETY: All fields are numbers, or arrays of numbers.
        let mut device: abi::DeviceAttributes = unsafe { std::mem::zeroed() };
        let mut port = abi::PortAttributes::default();
        let mut gid = [0; 16];
        // SAFETY: The context is open, and the structures are as long as those of the headers.
        let (status, domain) = unsafe {
            let status = (verbs.ibv_query_device)(context, &raw mut device)
                | (verbs.ibv_query_port)(context, PORT, &raw mut port)
                | (verbs.ibv_query_gid)(context, PORT, GID_INDEX.into(), &raw mut gid);
            (status, (verbs.ibv_alloc_pd)(context))
        };
        if status != 0 || domain.is_null() {
            return Err(Failure::new(libc::EIO, format_args!("the card {} does not answer", self.address)));
        }
        let small = |value: c_int| value.clamp(0, u8::MAX.into()) as u8;
        Ok(Opened {
            context,
            domain,
            gid: Gid::new(gid),
            mtu: small(port.active_mtu),
            responder_resources_max: small(device.max_qp_rd_atom),
            initiator_depth_max: small(device.max_qp_init_rd_atom),
        })
    }
}

/// All cards.
pub(crate) fn all() -> Outcome<&'static [Card]> {
    static CARDS: OnceLock<Vec<Card>> = OnceLock::new();
    static LISTING: Mutex<()> = Mutex::new(());
    let _listing = lock(&LISTING);
    match CARDS.get() {
        Some(cards) => Ok(cards),
        None => {
            let cards = Card::list()?;
            Ok(CARDS.get_or_init(|| cards))
        }
    }
}

/// The card with an address.
pub(crate) fn with_address(address: SocketAddr) -> Outcome<Option<&'static Card>> {
    let ip = crate::addresses::ipv4(address);
    Ok(all()?.iter().find(|card| ip == Some(card.address)))
}

/// The card that this process uses where the program leaves it open: one that is open, or else the first one that can be opened,
/// since other processes may have the ones before. `peer`, which the program connects to, is the last choice.
pub(crate) fn any_for(peer: Option<&Card>) -> Outcome<&'static Card> {
    let is_peer = |card: &Card| peer.is_some_and(|peer| std::ptr::eq(peer, card));
    let is_closed = |card: &Card| lock(&card.opened).is_none();
    let mut cards: Vec<&'static Card> = all()?.iter().collect();
    cards.sort_by_key(|card| (is_peer(card), is_closed(card)));
    let mut failure =
        Failure::new(libc::ENODEV, "there is no card; RNIC_DEVICE names them, as docs/driver.md says");
    for card in cards {
        match card.open() {
            Ok(_) => return Ok(card),
            Err(refused) => failure = refused,
        }
    }
    Err(failure)
}

/// As [`any_for`], for any peer.
pub(crate) fn any() -> Outcome<&'static Card> {
    any_for(None)
}

/// `rdma_get_devices`: the cards that can be opened, behind which a null stands.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_get_devices(count: *mut c_int) -> *mut *mut abi::Context {
    let cards = match all() {
        Ok(cards) => cards,
        Err(failure) => {
            failure.report();
            return null_mut();
        }
    };
    let contexts: Vec<_> = cards.iter().filter_map(|card| Some(card.open().ok()?.context)).collect();
    // SAFETY: The C library gives zeroed memory for all pointers and the null at the end, or null.
    let list = unsafe { libc::calloc(contexts.len() + 1, size_of::<*mut abi::Context>()) };
    let list = list.cast::<*mut abi::Context>();
    if list.is_null() {
        return list;
    }
    // SAFETY: The list has a place for each context, and the program passes null or the address of a number.
    unsafe {
        list.copy_from_nonoverlapping(contexts.as_ptr(), contexts.len());
        if !count.is_null() {
            *count = contexts.len() as c_int;
        }
    }
    list
}

/// `rdma_free_devices`. The contexts stay open.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_rdma_free_devices(list: *mut *mut abi::Context) {
    // SAFETY: The program passes a list that `rdma_get_devices` has allocated, once.
    unsafe { libc::free(list.cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guid_of_a_card_holds_its_address() {
        let guid = [0x00, 0x72, 10, 0xff, 0xfe, 1, 2, 3];
        assert_eq!(address_of(guid), Some(Ipv4Addr::new(10, 1, 2, 3)));
        assert_eq!(address_of([0x00, 0x72, 11, 0xff, 0xfe, 1, 2, 3]), None);
        assert_eq!(address_of([0; 8]), None);
    }
}
