//! Paths: one version of IP, and a UDP source port for each queue pair.

use crate::fake::FakeFunction;
use crate::rig::MAC;
use rnic_driver::{
    ConnectOptions, ConnectionInfo, Device, Function, Options, Path, QueuePair, ReceiveOptions, RemoteRights,
    raw, state::Init,
};
use rnic_layout::admin::ModifyQueuePair;
use rnic_layout::path::{Gid, Pmtu, flow_label, source_port};
use rnic_layout::state::{AttributeMask, PathMtu, QpState};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A card with an IPv4 and an IPv6 address, in this order.
fn two_families() -> (Arc<FakeFunction>, Device) {
    let function = FakeFunction::new(1);
    let addresses = vec![Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, 1)), Gid::from_mac(MAC)];
    let options = Options { addresses, seed: Some(7), ..Options::new(MAC) };
    let device = Device::open(Arc::clone(&function) as Arc<dyn Function>, options).unwrap();
    (function, device)
}

#[test]
fn a_path_has_one_version_of_ip() {
    let (_, device) = two_families();
    let domain = device.create_protection_domain().unwrap();
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let connect = |gid, path| {
        let queue_pair = domain.create_queue_pair(&queue, &queue, &Default::default()).unwrap();
        let queue_pair = queue_pair.initialize(RemoteRights::NONE).unwrap();
        let path_mtu = Pmtu::Bytes1024;
        let peer = ConnectionInfo { qp_number: 0x123, first_psn: 5, gid, mac: [2; 6], path_mtu };
        queue_pair.connect(&peer, &ConnectOptions { path, ..Default::default() }).map(drop)
    };
    let [v4, v6] = [Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, 2)), Gid::from_mac([2; 6])];
    for (gid, source_index, names) in
        [(v4, 0, None), (v6, 1, None), (v6, 0, Some(["IPv4", "IPv6"])), (v4, 1, Some(["IPv6", "IPv4"]))]
    {
        let path = Path { source_index, ..Path::new(gid, [2; 6]) };
        let handle = domain.create_address_handle(&path).map(drop);
        let mut results = vec![handle, connect(gid, Some(path))];
        // The direct path is from the first address.
        if source_index == 0 {
            results.push(connect(gid, None));
        }
        for result in results {
            match names {
                None => result.unwrap(),
                Some([source, destination]) => assert_eq!(
                    result.unwrap_err().to_string(),
                    format!(
                        "source address {source_index} is {source}, and the peer's address is {destination}; name a \
                         source address of the same version of IP"
                    )
                ),
            }
        }
    }
    let vlan = |control| {
        domain.create_address_handle(&Path { vlan: Some(control), ..Path::new(v4, [2; 6]) }).map(drop)
    };
    vlan(0xeffe).unwrap();
    let error = vlan(0xefff).unwrap_err();
    assert_eq!(error.to_string(), "VID of path.vlan is 4095; this card allows 0 to 4094");
}

/// Protocol 1.2, whichever way the path comes to the queue pair.
#[test]
fn without_a_flow_label_the_source_port_is_made_from_the_qpns() {
    let (function, device) = two_families();
    let domain = device.create_protection_domain().unwrap();
    let queue = device.create_completion_queue(&device.events(), &Default::default()).unwrap();
    let gid = Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, 2));
    let path = Path { traffic_class: 0x68, ..Path::new(gid, [2; 6]) };
    let handle = domain.create_address_handle(&path).unwrap();
    let info =
        |qp_number| ConnectionInfo { qp_number, first_psn: 5, gid, mac: [2; 6], path_mtu: Pmtu::Bytes1024 };
    let fresh = || -> QueuePair<Init> {
        let queue_pair = domain.create_queue_pair(&queue, &queue, &Default::default()).unwrap();
        queue_pair.initialize(RemoteRights::NONE).unwrap()
    };
    let port = |number| function.card().source_port(number);
    for peer in [0x100, 0x107, 0xab_cdef] {
        for path in [None, Some(path)] {
            let queue_pair = fresh();
            let number = queue_pair.number();
            let connected =
                queue_pair.connect(&info(peer), &ConnectOptions { path, ..Default::default() }).unwrap();
            assert_eq!(port(number), source_port(flow_label(number, peer)), "{path:?}");
            drop(connected);
        }
        let queue_pair = fresh();
        let number = queue_pair.number();
        let options = ReceiveOptions {
            path_mtu: Pmtu::Bytes1024,
            destination_qp: peer,
            receive_psn: 1,
            min_rnr_timer: 12,
            destination_read_atomic: None,
        };
        let connected = queue_pair.ready_to_receive(&handle, &options).unwrap();
        assert_eq!(port(number), source_port(flow_label(number, peer)), "with a handle");
        drop(connected);

        let queue_pair = domain.create_queue_pair(&queue, &queue, &Default::default()).unwrap();
        let mut queue_pair = raw::QueuePair::from(queue_pair);
        let number = queue_pair.number();
        let attributes = ModifyQueuePair {
            port: 1,
            partition_key: 0xffff,
            path_mtu: PathMtu::Bytes1024,
            destination_qp: peer,
            address_handle: handle.number(),
            ..ModifyQueuePair::at_reset()
        };
        for (next_state, mask) in [
            (QpState::Init, [AttributeMask::PARTITION, AttributeMask::PORT, AttributeMask::ACCESS].to_vec()),
            (
                QpState::ReadyToReceive,
                vec![
                    AttributeMask::ADDRESS,
                    AttributeMask::PATH_MTU,
                    AttributeMask::DESTINATION_QP,
                    AttributeMask::RECEIVE_PSN,
                    AttributeMask::DESTINATION_READ_ATOMIC,
                    AttributeMask::MIN_RNR_TIMER,
                ],
            ),
        ] {
            let mask = mask.into_iter().fold(AttributeMask::STATE, AttributeMask::and);
            queue_pair.modify(mask, &ModifyQueuePair { next_state, ..attributes }).unwrap();
        }
        assert_eq!(port(number), source_port(flow_label(number, peer)), "without types");
    }
    // The handles that the driver has made are gone, and a flow label that is given stays.
    assert_eq!(device.objects().address_handles, 1);
    let queue_pair = fresh();
    let number = queue_pair.number();
    let path = Path { flow_label: 0x1_2345, ..path };
    let options = ConnectOptions { path: Some(path), ..Default::default() };
    let connected = queue_pair.connect(&info(0x100), &options).unwrap();
    assert_eq!(port(number), source_port(0x1_2345));
    drop(connected);
}
