//! The list of cards: those that `RNIC_DEVICE` names.
#![allow(unsafe_code)]

use crate::abi;
use crate::addresses::Addresses;
use crate::outcome::say;
use rnic_driver::DeviceName;
use std::env;
use std::ffi::{OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr::null;
use std::sync::{Mutex, OnceLock};

/// Environment variable that names the cards.
const VARIABLE: &str = "RNIC_DEVICE";
/// What names of cards begin with.
const KINDS: [&[u8]; 3] = [b"vfu:", b"pci:", b"sim:"];
/// `IBV_NODE_CA`; the transport of a card is zero, `IBV_TRANSPORT_IB`.
const CHANNEL_ADAPTER: c_int = 1;

/// A card that can be opened.
#[repr(C)]
pub(crate) struct Listed {
    abi: abi::Device,
    /// The provider's functions, by which libmlx5 and libefa know cards of their vendors: it is none of these.
    provider: abi::Function,
    pub(crate) name: DeviceName,
    pub(crate) addresses: Addresses,
    index: c_int,
    /// The context of this process, as an address, and how many times the program has opened it.
    pub(crate) opened: Mutex<Option<(usize, usize)>>,
}

// SAFETY: The pointers in the structure of the ABI are null, and nobody writes it.
unsafe impl Send for Listed {}
// SAFETY: As above.
unsafe impl Sync for Listed {}

/// Fills the bytes of a C string with a text, and ends it.
fn c_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut bytes = [0; N];
    bytes.iter_mut().take(N - 1).zip(text.bytes()).for_each(|(place, byte)| *place = byte as c_char);
    bytes
}

impl Listed {
    fn new(index: usize, name: DeviceName) -> Self {
        let abi = abi::Device {
            obsolete: [null(); 2],
            node_type: CHANNEL_ADAPTER,
            transport_type: 0,
            name: c_text(&format!("rnic{index}")),
            dev_name: c_text(&format!("uverbs{index}")),
            dev_path: c_text(&name.to_string()),
            ibdev_path: c_text(&name.to_string()),
        };
        let (addresses, opened) = (Addresses::of(&name), Mutex::new(None));
        Self { abi, provider: null(), addresses, name, index: index as c_int, opened }
    }

    /// The card of a pointer that [`rnic_ibv_get_device_list`] has given out.
    ///
    /// # Safety
    ///
    /// The pointer is one of those.
    pub(crate) unsafe fn of(device: *mut abi::Device) -> &'static Self {
        // SAFETY: Cards that are listed are never freed, and the structure of the ABI is their first field.
        unsafe { &*device.cast::<Self>() }
    }

    /// The pointer that the program gets.
    pub(crate) fn pointer(&'static self) -> *mut abi::Device {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

/// Splits a list at the commas that a name follows: paths and options have commas too.
fn split(list: &OsStr) -> Vec<OsString> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for part in list.as_bytes().split(|&byte| byte == b',') {
        let begins = KINDS.iter().any(|kind| part.starts_with(kind));
        match names.last_mut().filter(|_| !begins) {
            Some(name) => {
                name.push(b',');
                name.extend_from_slice(part);
            }
            None => names.push(part.to_vec()),
        }
    }
    names.into_iter().map(OsString::from_vec).collect()
}

/// Reads the list of a variable. What is no name is told, and left out.
fn read(list: Option<&OsStr>) -> Vec<Listed> {
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        say(format_args!(
            "{VARIABLE} is not set, so there is no card; set it to the socket of a served card, as in \
             {VARIABLE}=vfu:/run/card.sock, or to several names separated by commas"
        ));
        return Vec::new();
    };
    let mut listed = Vec::new();
    for name in split(list) {
        match DeviceName::try_from(&*name) {
            Ok(name) => listed.push(Listed::new(listed.len(), name)),
            Err(error) => say(format_args!("{VARIABLE}: {error}")),
        }
    }
    listed
}

/// The cards of this process. The variable is read once.
fn cards() -> &'static [Listed] {
    static CARDS: OnceLock<Vec<Listed>> = OnceLock::new();
    CARDS.get_or_init(|| read(env::var_os(VARIABLE).as_deref()))
}

/// `ibv_get_device_list`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_get_device_list(count: *mut c_int) -> *mut *mut abi::Device {
    let cards = cards();
    // SAFETY: The C library gives zeroed memory for all pointers and the null at the end, or null.
    let list = unsafe { libc::calloc(cards.len() + 1, size_of::<*mut abi::Device>()) };
    let list = list.cast::<*mut abi::Device>();
    if list.is_null() {
        return list;
    }
    for (index, card) in cards.iter().enumerate() {
        // SAFETY: The list has a place for each card.
        unsafe { *list.add(index) = card.pointer() };
    }
    if !count.is_null() {
        // SAFETY: The program passes null or the address of a number.
        unsafe { *count = cards.len() as c_int };
    }
    list
}

/// `ibv_free_device_list`. The cards themselves stay, so that those of other lists, and those that are open, stay valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_free_device_list(list: *mut *mut abi::Device) {
    // SAFETY: The program passes a list that `ibv_get_device_list` has allocated, once.
    unsafe { libc::free(list.cast()) }
}

/// `ibv_get_device_name`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_get_device_name(device: *mut abi::Device) -> *const c_char {
    // SAFETY: The program passes a device of a list.
    unsafe { Listed::of(device) }.abi.name.as_ptr()
}

/// `ibv_get_device_index`: the place in `RNIC_DEVICE`, since no kernel numbers the cards.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_get_device_index(device: *mut abi::Device) -> c_int {
    // SAFETY: The program passes a device of a list.
    unsafe { Listed::of(device) }.index
}

/// `ibv_get_device_guid`, in wire order.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_get_device_guid(device: *mut abi::Device) -> u64 {
    // SAFETY: The program passes a device of a list.
    u64::from_ne_bytes(unsafe { Listed::of(device) }.addresses.guid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<String> {
        read(Some(OsStr::new(list))).iter().map(|card| card.name.to_string()).collect()
    }

    #[test]
    fn a_list_has_names_with_commas() {
        assert_eq!(names("vfu:/a,vfu:/b"), ["vfu:/a", "vfu:/b"]);
        assert_eq!(names("vfu:/a,b c,vfu:d"), ["vfu:/a,b c", "vfu:d"]);
        assert_eq!(
            names("pci:65:00.0,time-scale=9,access=group,vfu:/a"),
            ["pci:0000:65:00.0,time-scale=9,access=group", "vfu:/a"]
        );
    }

    #[test]
    fn what_is_no_name_is_left_out() {
        assert_eq!(names("sim:,vfu:/a,vfu:"), ["vfu:/a"]);
        assert!(names("card0").is_empty() && read(None).is_empty() && names("").is_empty());
    }

    #[test]
    fn cards_have_numbered_names() {
        let cards = read(Some(OsStr::new("vfu:/a,vfu:/b")));
        let name = |card: &Listed| card.abi.name.iter().map(|&byte| byte as u8 as char).collect::<String>();
        assert!(name(&cards[0]).starts_with("rnic0\0") && name(&cards[1]).starts_with("rnic1\0"));
        assert_ne!(cards[0].addresses, cards[1].addresses);
        assert_eq!(c_text::<4>("abcdef").map(|byte| byte as u8), *b"abc\0");
    }
}
