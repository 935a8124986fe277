//! Attributes of queue pairs, as the verbs have them and as the card has them.

use crate::abi::{self, access};
use crate::addresses::resolve;
use crate::context::PORT;
use crate::outcome::{Failure, Outcome};
use crate::query::DEFAULT_PARTITION;
use rnic_driver::Path;
use rnic_layout::admin::ModifyQueuePair;
use rnic_layout::path::Gid;
use rnic_layout::state::{ATTRIBUTES, AttributeMask, PathMtu, QpState};

/// Attributes of the mask that name no attribute of a queue pair.
fn unknown(mask: AttributeMask) -> u32 {
    mask.0 & !ATTRIBUTES.iter().fold(0, |known, attribute| known | attribute.mask.0)
}

/// Fails for a value that the verbs do not have.
fn invalid(name: &str, value: impl std::fmt::Display, allowed: &str) -> Failure {
    Failure::new(libc::EINVAL, format_args!("{name} is {value}; {allowed}"))
}

fn state(name: &str, number: i32) -> Outcome<QpState> {
    let state = u64::try_from(number).ok().and_then(QpState::from_number);
    state.ok_or_else(|| invalid(name, number, "states are 0 (RESET) to 6 (ERR)"))
}

/// Reads the attributes of a mask for the card. The address handle is the caller's.
pub(crate) fn for_card(
    attributes: &abi::QueuePairAttributes,
    mask: AttributeMask,
) -> Outcome<ModifyQueuePair> {
    let has = |attribute| mask.contains(attribute);
    if unknown(mask) != 0 {
        return Err(invalid(
            "the attribute mask",
            format_args!("{:#x}", mask.0),
            "some of its bits name no attribute",
        ));
    }
    let mut into = ModifyQueuePair::at_reset();
    if has(AttributeMask::STATE) {
        into.next_state = state("qp_state", attributes.qp_state)?;
    }
    if has(AttributeMask::CURRENT_STATE) {
        into.current_state = state("cur_qp_state", attributes.cur_qp_state)?;
    }
    if has(AttributeMask::ACCESS) {
        let flag = |flag| attributes.qp_access_flags & flag != 0;
        into.local_write = flag(access::LOCAL_WRITE);
        into.remote_write = flag(access::REMOTE_WRITE);
        into.remote_read = flag(access::REMOTE_READ);
        into.remote_atomic = flag(access::REMOTE_ATOMIC);
    }
    if has(AttributeMask::PARTITION) {
        if attributes.pkey_index != 0 {
            return Err(invalid("pkey_index", attributes.pkey_index, "the table has one P_Key, of index 0"));
        }
        into.partition_key = DEFAULT_PARTITION;
    }
    if has(AttributeMask::PORT) && attributes.port_num != PORT {
        return Err(invalid("port_num", attributes.port_num, "the card has port 1"));
    }
    into.port = u8::from(has(AttributeMask::PORT));
    if has(AttributeMask::PATH_MTU) {
        let mtu = u64::try_from(attributes.path_mtu).ok().and_then(PathMtu::from_number);
        into.path_mtu = mtu.ok_or_else(|| {
            invalid("path_mtu", attributes.path_mtu, "codes are 1 (256 bytes) to 5 (4096 bytes)")
        })?;
    }
    into.queue_key = attributes.qkey;
    into.receive_psn = attributes.rq_psn;
    into.send_psn = attributes.sq_psn;
    into.destination_qp = attributes.dest_qp_num;
    into.drain_notify = attributes.en_sqd_async_notify != 0;
    into.read_atomic = attributes.max_rd_atomic;
    into.destination_read_atomic = attributes.max_dest_rd_atomic;
    into.min_rnr_timer = attributes.min_rnr_timer;
    into.timeout = attributes.timeout;
    into.retry_count = attributes.retry_cnt;
    into.rnr_retry = attributes.rnr_retry;
    Ok(without_others(into, mask))
}

/// Sets what the mask does not name to its value at reset: programs leave the fields of other attributes as they are.
fn without_others(attributes: ModifyQueuePair, mask: AttributeMask) -> ModifyQueuePair {
    let reset = ModifyQueuePair::at_reset();
    macro_rules! named {
        ($($attribute:ident $field:ident),+) => {
            ModifyQueuePair {
                $($field: if mask.contains(AttributeMask::$attribute) { attributes.$field } else { reset.$field },)+
                ..attributes
            }
        };
    }
    named!(
        QUEUE_KEY queue_key, RECEIVE_PSN receive_psn, SEND_PSN send_psn, DESTINATION_QP destination_qp,
        DRAIN_NOTIFY drain_notify, READ_ATOMIC read_atomic, DESTINATION_READ_ATOMIC destination_read_atomic,
        MIN_RNR_TIMER min_rnr_timer, TIMEOUT timeout, RETRY_COUNT retry_count, RNR_RETRY rnr_retry
    )
}

/// The path of an address vector.
pub(crate) fn path(vector: &abi::AddressAttributes) -> Outcome<Path> {
    let abi::AddressAttributes { grh, is_global, port_num, .. } = vector;
    if *is_global == 0 {
        return Err(invalid(
            "is_global",
            0,
            "a RoCE address has a GID: set it to 1, and `grh`; programs have an option such as -g 0",
        ));
    }
    if *port_num != PORT {
        return Err(invalid("ah_attr.port_num", port_num, "the card has port 1"));
    }
    let destination = Gid(grh.dgid.bytes());
    Ok(Path {
        source_index: grh.sgid_index,
        traffic_class: grh.traffic_class,
        hop_limit: grh.hop_limit.max(1),
        flow_label: grh.flow_label,
        ..Path::new(destination, resolve(destination)?)
    })
}

/// Attributes for the program: those that the card knows, over those that the program has set.
pub(crate) fn for_program(
    known: &ModifyQueuePair,
    set: &abi::QueuePairAttributes,
) -> abi::QueuePairAttributes {
    let rights = [
        (known.local_write, access::LOCAL_WRITE),
        (known.remote_write, access::REMOTE_WRITE),
        (known.remote_read, access::REMOTE_READ),
        (known.remote_atomic, access::REMOTE_ATOMIC),
    ];
    let state = known.next_state.number().into();
    abi::QueuePairAttributes {
        qp_state: state,
        cur_qp_state: state,
        path_mtu: known.path_mtu.number().into(),
        qkey: known.queue_key,
        rq_psn: known.receive_psn,
        sq_psn: known.send_psn,
        dest_qp_num: known.destination_qp,
        qp_access_flags: rights.into_iter().filter(|(has, _)| *has).map(|(_, flag)| flag).sum(),
        sq_draining: known.requests_in_flight.into(),
        max_rd_atomic: known.read_atomic,
        max_dest_rd_atomic: known.destination_read_atomic,
        min_rnr_timer: known.min_rnr_timer,
        port_num: known.port,
        timeout: known.timeout,
        retry_cnt: known.retry_count,
        rnr_retry: known.rnr_retry,
        ..*set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INIT: AttributeMask = AttributeMask::STATE
        .and(AttributeMask::PARTITION)
        .and(AttributeMask::PORT)
        .and(AttributeMask::ACCESS);

    #[test]
    fn only_attributes_of_the_mask_reach_the_card() {
        let attributes = abi::QueuePairAttributes {
            qp_state: 1,
            port_num: 1,
            qp_access_flags: access::REMOTE_READ,
            retry_cnt: 99,
            path_mtu: 77,
            ..Default::default()
        };
        let read = for_card(&attributes, INIT).unwrap();
        let expected = ModifyQueuePair {
            next_state: QpState::Init,
            remote_read: true,
            partition_key: 0xffff,
            port: 1,
            ..ModifyQueuePair::at_reset()
        };
        assert_eq!(read, ModifyQueuePair { local_write: false, ..expected });
    }

    #[test]
    fn values_that_the_verbs_have_not_are_refused() {
        let good = abi::QueuePairAttributes { qp_state: 1, port_num: 1, path_mtu: 3, ..Default::default() };
        let mask = INIT.and(AttributeMask::PATH_MTU);
        assert!(for_card(&good, mask).is_ok());
        for bad in [
            abi::QueuePairAttributes { qp_state: 7, ..good },
            abi::QueuePairAttributes { qp_state: -1, ..good },
            abi::QueuePairAttributes { port_num: 2, ..good },
            abi::QueuePairAttributes { pkey_index: 1, ..good },
            abi::QueuePairAttributes { path_mtu: 6, ..good },
        ] {
            assert_eq!(for_card(&bad, mask).unwrap_err().errno(), libc::EINVAL);
        }
        assert!(for_card(&good, mask.and(AttributeMask(1 << 21))).is_err(), "a bit without a meaning");
    }

    #[test]
    fn an_address_vector_gives_a_path() {
        let words = [0, u64::from_ne_bytes([0, 0, 0xff, 0xff, 10, 1, 2, 3])];
        let grh = abi::GlobalRoute { dgid: abi::Gid { words }, traffic_class: 8, ..Default::default() };
        let vector = abi::AddressAttributes { grh, is_global: 1, port_num: 1, ..Default::default() };
        let path = path(&vector).unwrap();
        assert_eq!((path.destination_mac, path.hop_limit), ([0x02, 0x72, 10, 1, 2, 3], 1));
        assert_eq!(path.traffic_class, 8);
        for bad in [
            abi::AddressAttributes { is_global: 0, ..vector },
            abi::AddressAttributes { port_num: 0, ..vector },
        ] {
            assert!(super::path(&bad).is_err());
        }
    }

    #[test]
    fn attributes_come_back_as_they_were_set() {
        let mask = AttributeMask(0x1f_ffff).without(AttributeMask(1 << 14 | 1 << 18 | 1 << 19));
        let set = abi::QueuePairAttributes {
            qp_state: 3,
            cur_qp_state: 3,
            path_mtu: 4,
            qkey: 5,
            rq_psn: 6,
            sq_psn: 7,
            dest_qp_num: 8,
            qp_access_flags: access::LOCAL_WRITE | access::REMOTE_ATOMIC,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 2,
            min_rnr_timer: 12,
            port_num: 1,
            timeout: 14,
            retry_cnt: 6,
            rnr_retry: 7,
            ..Default::default()
        };
        let card = for_card(&set, mask).unwrap();
        assert_eq!(for_program(&card, &abi::QueuePairAttributes::default()), set);
    }
}
