//! Names of values, codes of rates, and what the library knows of files and addresses.
#![allow(unsafe_code)]

use crate::abi;
use crate::addresses::resolve;
use crate::outcome::minus_one;
use rnic_layout::path::Gid;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::queue::event::AsyncEvent;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

const UNKNOWN: &CStr = c"unknown";

/// The C string of a value, of a table that is made once and stays.
fn text(table: &'static [Box<CStr>], index: c_int) -> *const c_char {
    usize::try_from(index).ok().and_then(|index| table.get(index)).map_or(UNKNOWN, |text| text).as_ptr()
}

/// Makes a table of names, which have no zeros in them.
fn table(names: impl Iterator<Item = &'static str>) -> Vec<Box<CStr>> {
    let spoken = names.map(|name| std::ffi::CString::new(name.replace('_', " ")).unwrap_or_default());
    spoken.map(Into::into).collect()
}

/// `ibv_wc_status_str`.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_wc_status_str(status: c_int) -> *const c_char {
    static NAMES: OnceLock<Vec<Box<CStr>>> = OnceLock::new();
    text(NAMES.get_or_init(|| table(CompletionStatus::ALL.iter().map(|status| status.name()))), status)
}

/// `ibv_event_type_str`.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_event_type_str(event: c_int) -> *const c_char {
    static NAMES: OnceLock<Vec<Box<CStr>>> = OnceLock::new();
    text(NAMES.get_or_init(|| table(AsyncEvent::ALL.iter().map(|event| event.name()))), event)
}

/// `ibv_node_type_str`.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_node_type_str(node: c_int) -> *const c_char {
    let name = match node {
        1 => c"channel adapter",
        2 => c"switch",
        3 => c"router",
        4 => c"iWARP adapter",
        5 | 6 => c"usNIC adapter",
        7 => c"unspecified",
        _ => UNKNOWN,
    };
    name.as_ptr()
}

/// `ibv_port_state_str`.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_port_state_str(state: c_int) -> *const c_char {
    let name = match state {
        0 => c"no change",
        1 => c"down",
        2 => c"init",
        3 => c"armed",
        4 => c"active",
        5 => c"active, deferred",
        _ => UNKNOWN,
    };
    name.as_ptr()
}

/// Codes of rates, with the multiple of 2.5 Gb/s, if there is one, and the Mb/s.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (3, 4, 10_000),
    (4, 12, 30_000),
    (5, 2, 5_000),
    (6, 8, 20_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, -1, 14_062),
    (12, -1, 56_250),
    (13, -1, 112_500),
    (14, -1, 168_750),
    (15, -1, 25_781),
    (16, -1, 103_125),
    (17, -1, 206_250),
    (18, -1, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// `ibv_rate_to_mult`, or -1.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |(_, multiple, _)| *multiple)
}

/// `mult_to_ibv_rate`, or zero: as fast as can be.
#[unsafe(no_mangle)]
extern "C" fn rnic_mult_to_ibv_rate(multiple: c_int) -> c_int {
    let found = RATES.iter().find(|(_, known, _)| *known == multiple && multiple > 0);
    found.map_or(0, |(code, ..)| *code)
}

/// `ibv_rate_to_mbps`, or -1.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |(_, _, megabits)| *megabits)
}

/// `mbps_to_ibv_rate`, or zero: as fast as can be.
#[unsafe(no_mangle)]
extern "C" fn rnic_mbps_to_ibv_rate(megabits: c_int) -> c_int {
    RATES.iter().find(|(_, _, known)| *known == megabits).map_or(0, |(code, ..)| *code)
}

/// `ibv_get_sysfs_path`.
#[unsafe(no_mangle)]
extern "C" fn rnic_ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// `ibv_read_sysfs_file`: reads a file without the end of its line. A card has no files in sysfs, so that programs get -1 and go on
/// without.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_read_sysfs_file(
    folder: *const c_char,
    name: *const c_char,
    into: *mut u8,
    bytes: usize,
) -> c_int {
    // SAFETY: The program passes two texts.
    let [folder, name] = [folder, name].map(|text| unsafe { CStr::from_ptr(text) });
    let [folder, name] = [folder, name].map(|text| OsStr::from_bytes(text.to_bytes()));
    let Ok(found) = std::fs::read(Path::new(folder).join(name)) else { return -1 };
    let line = found.strip_suffix(b"\n").unwrap_or(&found);
    let count = line.len().min(bytes);
    // SAFETY: The program passes memory of `bytes` bytes; the text ends with a zero if it fits.
    unsafe {
        into.copy_from_nonoverlapping(line.as_ptr(), count);
        if count < bytes {
            *into.add(count) = 0;
        }
    }
    count as c_int
}

/// `ibv_resolve_eth_l2_from_gid`: the MAC address of the peer of an address vector. There is no VLAN.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_resolve_eth_l2_from_gid(
    _context: *mut abi::Context,
    vector: *const abi::AddressAttributes,
    mac: *mut [u8; 6],
    vlan: *mut u16,
) -> c_int {
    /// A VLAN identifier that stands for none.
    const NO_VLAN: u16 = 0xffff;
    // SAFETY: The program passes an address vector.
    let found = resolve(Gid(unsafe { &*vector }.grh.dgid.bytes()));
    // SAFETY: The program passes a place for the MAC address, and null or one for the VLAN.
    minus_one(found.map(|found| unsafe {
        *mac = found;
        if !vlan.is_null() {
            *vlan = NO_VLAN;
        }
    }))
}
