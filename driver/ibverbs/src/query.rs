//! Queries of the device, its port, and the tables of GIDs and P_Keys.
#![allow(unsafe_code)]

use crate::abi;
use crate::completion_queue::cqes_max;
use crate::context::{Context, PORT};
use crate::outcome::{Failure, Outcome, quiet_minus_one, set_errno, status};
use rnic_driver::Limits;
use rnic_layout::limits::SEND_SLOTS_MAX;
use rnic_layout::path::Pmtu;
use rnic_layout::pci;
use std::ffi::c_int;

/// `IBV_DEVICE_RC_RNR_NAK_GEN`.
const RNR_NAK: u32 = 1 << 12;
/// `IBV_ATOMIC_HCA`: atomics are atomic with respect to others of the card.
const ATOMIC_HCA: c_int = 1;
/// `IBV_PORT_DOWN` and `IBV_PORT_ACTIVE`, with the physical states that go with them.
const DOWN: (c_int, u8) = (1, 3);
const ACTIVE: (c_int, u8) = (4, 5);
/// `IBV_LINK_LAYER_ETHERNET`.
const ETHERNET: u8 = 2;
/// `IBV_PORT_IP_BASED_GIDS`.
const IP_BASED_GIDS: u32 = 1 << 26;
/// `IBV_GID_TYPE_ROCE_V2`.
const ROCE_V2: u32 = 2;
/// RoCE v2 as the older query counts it, which has one type for InfiniBand and RoCE v1.
const ROCE_V2_OLD: c_int = 1;
/// The only P_Key.
pub(crate) const DEFAULT_PARTITION: u16 = 0xffff;
/// Bytes of `ibv_port_attr` that programs of its first version have.
const OLD_PORT_BYTES: usize = std::mem::offset_of!(abi::PortAttributes, port_cap_flags2);

/// Largest number of objects of a table, log2.
fn count(log2: u8) -> c_int {
    1 << log2
}

/// Attributes of a card. What it has not is zero.
fn attributes_of(context: &Context) -> abi::DeviceAttributes {
    let Limits { tables, queues, features, memory, .. } = context.card.limits();
    let guid = context.addresses.guid();
    let has_srqs = features.shared_receive_queues;
    let reads = queues.read_atomic.into();
    let responses: c_int = queues.destination_read_atomic.into();
    let pages = (12..=30).filter(|&log2| (12..=memory.largest_page_log2.max(12)).contains(&log2));
    let mut fw_ver = [0; 64];
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    fw_ver[..version.len()].copy_from_slice(version);
    abi::DeviceAttributes {
        fw_ver,
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: i64::MAX as u64,
        page_size_cap: pages.map(|log2| 1u64 << log2).sum(),
        vendor_id: pci::VENDOR.into(),
        vendor_part_id: pci::DEVICE.into(),
        hw_ver: 0,
        max_qp: count(tables.queue_pairs_log2),
        max_qp_wr: (count(queues.send_slots_log2) / SEND_SLOTS_MAX as c_int)
            .min(count(queues.receive_wqes_log2)),
        device_cap_flags: RNR_NAK,
        max_sge: queues.send_sges.min(queues.receive_sges).into(),
        max_sge_rd: queues.response_sges.into(),
        max_cq: count(tables.completion_queues_log2),
        max_cqe: cqes_max(&context.card) as c_int,
        max_mr: count(tables.regions_log2),
        max_pd: count(rnic_layout::limits::DOMAIN_BITS as u8),
        max_qp_rd_atom: responses,
        max_ee_rd_atom: 0,
        max_res_rd_atom: responses << tables.queue_pairs_log2,
        max_qp_init_rd_atom: reads,
        max_ee_init_rd_atom: 0,
        atomic_cap: if features.atomics { ATOMIC_HCA } else { 0 },
        max_ee: 0,
        max_rdd: 0,
        max_mw: 0,
        max_raw_ipv6_qp: 0,
        max_raw_ethy_qp: 0,
        max_mcast_grp: 0,
        max_mcast_qp_attach: 0,
        max_total_mcast_qp_attach: 0,
        max_ah: 0,
        max_fmr: 0,
        max_map_per_fmr: 0,
        max_srq: if has_srqs { count(tables.shared_receive_queues_log2) } else { 0 },
        max_srq_wr: if has_srqs { count(queues.receive_wqes_log2) } else { 0 },
        max_srq_sge: if has_srqs { queues.receive_sges.into() } else { 0 },
        max_pkeys: 1,
        local_ca_ack_delay: 0,
        phys_port_cnt: 1,
    }
}

/// Width and speed of a port as the verbs code them, by its rate in Mb/s. The speed is that of one of `width` lanes.
fn width_and_speed(megabits: u32) -> (u8, u8) {
    let (one, four) = (1, 2);
    match megabits {
        0..25_000 => (one, 4),
        25_000..40_000 => (one, 32),
        40_000..50_000 => (four, 4),
        50_000..100_000 => (one, 64),
        100_000..200_000 => (four, 32),
        _ => (four, 64),
    }
}

/// Attributes of the port of a card.
fn port_of(context: &Context) -> Outcome<abi::PortAttributes> {
    let card = &context.card;
    let (state, phys_state) = if card.link_up()? { ACTIVE } else { DOWN };
    let (active_width, active_speed) = width_and_speed(card.port_speed()?.unwrap_or(0));
    Ok(abi::PortAttributes {
        state,
        max_mtu: Pmtu::Bytes4096.code().into(),
        active_mtu: card.options().active_mtu.code().into(),
        gid_tbl_len: context.addresses.gids.len() as c_int,
        port_cap_flags: IP_BASED_GIDS,
        max_msg_sz: card.limits().message_bytes.min(u32::MAX.into()) as u32,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width,
        active_speed,
        phys_state,
        link_layer: ETHERNET,
        flags: 0,
        port_cap_flags2: 0,
    })
}

/// The context of a pointer.
///
/// # Safety
///
/// That of [`Context::of`].
unsafe fn context_of<'a>(context: *mut abi::Context) -> &'a Context {
    // SAFETY: The caller answers for the pointer.
    unsafe { Context::of(context) }
}

/// `ibv_query_device`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_query_device(
    context: *mut abi::Context,
    attributes: *mut abi::DeviceAttributes,
) -> c_int {
    // SAFETY: The program passes a context that is open, and the address of the attributes.
    unsafe { *attributes = attributes_of(context_of(context)) };
    0
}

/// `ibv_query_device_ex`: the attributes of `ibv_query_device`, and zeros for what the card has not.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut abi::Context,
    input: *const u32,
    attributes: *mut u8,
    bytes: usize,
) -> c_int {
    /// Offset of `phys_port_cnt_ex`.
    const PORT_COUNT: usize = 396;
    // SAFETY: The program passes null, or a structure of one mask.
    let is_asked_too_much = !input.is_null() && unsafe { *input } != 0;
    if is_asked_too_much || bytes < size_of::<abi::DeviceAttributes>() {
        return libc::EINVAL;
    }
    // SAFETY: The program passes memory of `bytes` bytes, which is long enough for what is written.
    unsafe {
        attributes.write_bytes(0, bytes);
        let first = attributes_of(context_of(context));
        attributes.cast::<abi::DeviceAttributes>().write(first);
        if bytes >= PORT_COUNT + size_of::<u32>() {
            attributes.add(PORT_COUNT).cast::<u32>().write(1);
        }
    }
    0
}

/// Copies attributes of the port into memory of the program, as far as it reaches.
fn port(context: &Context, number: u8) -> Outcome<abi::PortAttributes> {
    if number != PORT {
        return Err(Failure::new(
            libc::EINVAL,
            format_args!("there is no port {number}; the card has port {PORT}"),
        ));
    }
    port_of(context)
}

/// `ibv_query_port`, as the inline function calls it.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut abi::Context,
    number: u8,
    attributes: *mut u8,
    bytes: usize,
) -> c_int {
    // SAFETY: The program passes a context that is open.
    let port = port(unsafe { context_of(context) }, number);
    status(port.map(|port| {
        let written = bytes.min(size_of::<abi::PortAttributes>());
        // SAFETY: The program passes memory of `bytes` bytes.
        unsafe {
            attributes.write_bytes(0, bytes);
            attributes.copy_from_nonoverlapping((&raw const port).cast(), written);
        }
    }))
}

/// `ibv_query_port`, of programs that do not have the inline function.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_query_port(
    context: *mut abi::Context,
    number: u8,
    attributes: *mut u8,
) -> c_int {
    // SAFETY: The program has at least the first version of the structure.
    unsafe { query_port(context, number, attributes, OLD_PORT_BYTES) }
}

/// A GID of the table of a port, or the errno.
fn gid(context: &Context, port: u32, index: u32) -> Result<[u8; 16], c_int> {
    if port != u32::from(PORT) {
        return Err(libc::EINVAL);
    }
    context.addresses.gids.get(index as usize).map(|gid| gid.0).ok_or(libc::ENODATA)
}

/// `ibv_query_gid`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_query_gid(
    context: *mut abi::Context,
    port: u8,
    index: c_int,
    into: *mut [u8; 16],
) -> c_int {
    // SAFETY: The program passes a context that is open.
    let gid = gid(unsafe { context_of(context) }, port.into(), index as u32);
    // SAFETY: The program passes the address of a GID.
    quiet_minus_one(gid.map(|gid| unsafe { *into = gid }))
}

/// `ibv_query_gid_ex`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic__ibv_query_gid_ex(
    context: *mut abi::Context,
    port_num: u32,
    gid_index: u32,
    entry: *mut abi::GidEntry,
    flags: u32,
    bytes: usize,
) -> c_int {
    if flags != 0 || bytes < size_of::<abi::GidEntry>() {
        return libc::EINVAL;
    }
    // SAFETY: The program passes a context that is open.
    match gid(unsafe { context_of(context) }, port_num, gid_index) {
        Ok(gid) => {
            let found = abi::GidEntry { gid, gid_index, port_num, gid_type: ROCE_V2, ndev_ifindex: 0 };
            // SAFETY: The program passes the address of an entry.
            unsafe { *entry = found };
            0
        }
        Err(errno) => errno,
    }
}

/// `ibv_query_gid_table`: fills a table of entries, and returns their number, or a negative errno.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic__ibv_query_gid_table(
    context: *mut abi::Context,
    entries: *mut abi::GidEntry,
    most: usize,
    flags: u32,
    bytes: usize,
) -> isize {
    if flags != 0 || bytes < size_of::<abi::GidEntry>() {
        return -(libc::EINVAL as isize);
    }
    // SAFETY: The program passes a context that is open.
    let context = unsafe { context_of(context) };
    let found = context.addresses.gids.len();
    if most < found {
        return -(libc::EINVAL as isize);
    }
    for (index, gid) in context.addresses.gids.iter().enumerate() {
        let (gid_index, port_num) = (index as u32, PORT.into());
        let entry = abi::GidEntry { gid: gid.0, gid_index, port_num, gid_type: ROCE_V2, ndev_ifindex: 0 };
        // SAFETY: The program passes a table of `most` places of `bytes` bytes each.
        unsafe { entries.cast::<u8>().add(index * bytes).cast::<abi::GidEntry>().write_unaligned(entry) };
    }
    found as isize
}

/// `ibv_query_gid_type`, which `ibv_devinfo` asks for.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_query_gid_type(
    context: *mut abi::Context,
    port: u8,
    index: u32,
    into: *mut c_int,
) -> c_int {
    // SAFETY: The program passes a context that is open.
    let gid = gid(unsafe { context_of(context) }, port.into(), index);
    // SAFETY: The program passes the address of a type.
    quiet_minus_one(gid.map(|_| unsafe { *into = ROCE_V2_OLD }))
}

/// `ibv_query_pkey`.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_query_pkey(
    _context: *mut abi::Context,
    port: u8,
    index: c_int,
    into: *mut u16,
) -> c_int {
    let is_there = port == PORT && index == 0;
    quiet_minus_one(if is_there { Ok(()) } else { Err(libc::EINVAL) }.map(|()| {
        // SAFETY: The program passes the address of a P_Key, which is in wire order.
        unsafe { *into = DEFAULT_PARTITION.to_be() }
    }))
}

/// `ibv_get_pkey_index`: the index, or -1.
#[unsafe(no_mangle)]
unsafe extern "C" fn rnic_ibv_get_pkey_index(_context: *mut abi::Context, port: u8, key: u16) -> c_int {
    if port == PORT && key == DEFAULT_PARTITION.to_be() {
        return 0;
    }
    set_errno(libc::EINVAL);
    -1
}
