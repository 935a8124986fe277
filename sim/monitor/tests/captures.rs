//! Frames of Linux between two hosts: each host is judged as if it were a card that was set up for the flow.
use rnic_layout::admin::{
    Answer, Body, Command, CommandHeader, CommandOpcode, CommandStatus, CreateAddressHandle, CreateQueuePair,
    ModifyQueuePair,
};
use rnic_layout::psn::Psn;
use rnic_layout::registers::{
    OwnMac, REG_OWN_MAC, REG_SOURCE_ADDRESS_HIGH, REG_SOURCE_ADDRESS_LOW, REG_SOURCE_ADDRESS_PORT,
    SourceAddressPort,
};
use rnic_layout::state::{AttributeMask, PathMtu, QpState};
use rnic_layout::wire::{IpRepr, PacketRepr};
use rnic_monitor::{Finding, Monitor, Rates, Rule};
use rnic_stimulus::captures::Capture;
use rnic_stimulus::captures::flow::Flow;
use std::path::PathBuf;

/// Captures without a lost or damaged frame.
const CAPTURES: [&str; 8] = [
    "rxe_rc_send_2500",
    "rxe_rc_write_3000",
    "rxe_rc_read_5000",
    "rxe_rc_atomic_fa",
    "rxe_rc_atomic_cas",
    "rxe_rsocket_write_imm",
    "rxe_rc_srq",
    "rxe_cm_rping",
];

/// Rules by which the card is stricter than Linux must be (protocol 1.3).
const CHOICES: [Rule; 1] = [Rule::MigReq];

/// Time from one frame to the next, longer than the timeout: Linux has repeated requests after timeouts.
const FRAME_PS: u64 = 10_000_000;

fn number_of(mac: [u8; 6]) -> u64 {
    mac.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn half(gid: &[u8]) -> u64 {
    gid.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn post(monitor: &mut Monitor, opcode: CommandOpcode, object_number: u32, body: Body) {
    monitor.command(&Command { header: CommandHeader { opcode, tag: 1, object_number }, body });
    monitor.answer(0, &Answer { tag: 1, status: CommandStatus::Success, ..Answer::at_reset() });
}

/// Rates of the hosts.
const RATES: Rates = Rates { core_hertz: 250_000_000, bits_per_second: 10_000_000_000 };

/// A monitor of the host that sends `sample`, with one queue pair.
fn monitor(sample: &PacketRepr, number: u32, first_psn: Psn) -> Monitor {
    let mut monitor = Monitor::new(RATES);
    let mac = number_of(sample.ethernet.source.0);
    let own_mac = OwnMac { mac }.to_bytes().unwrap();
    monitor.register(REG_OWN_MAC.offset.into(), u64::from_le_bytes(own_mac));
    let gid = sample.ip.source().0;
    monitor.register(REG_SOURCE_ADDRESS_HIGH.at(0).into(), half(&gid[..8]));
    monitor.register(REG_SOURCE_ADDRESS_LOW.at(0).into(), half(&gid[8..]));
    let port = SourceAddressPort { mac, valid: true }.to_bytes().unwrap();
    monitor.register(REG_SOURCE_ADDRESS_PORT.at(0).into(), u64::from_le_bytes(port));
    let flow_label = match &sample.ip {
        IpRepr::V4(_) => 0,
        IpRepr::V6(ip) => ip.flow_label,
    };
    let handle = CreateAddressHandle {
        is_ipv6: matches!(sample.ip, IpRepr::V6(_)),
        source_port: sample.udp.source_port,
        destination_mac: number_of(sample.ethernet.destination.0),
        traffic_class: sample.ip.traffic_class(),
        hop_limit: sample.ip.hop_limit(),
        destination_address: sample.ip.destination().0,
        flow_label,
        ..CreateAddressHandle::at_reset()
    };
    post(&mut monitor, CommandOpcode::CreateAddressHandle, 1, Body::AddressHandle(handle));
    post(
        &mut monitor,
        CommandOpcode::CreateQueuePair,
        number,
        Body::CreateQueuePair(CreateQueuePair::at_reset()),
    );
    let mask = [
        AttributeMask::STATE,
        AttributeMask::PARTITION,
        AttributeMask::ADDRESS,
        AttributeMask::PATH_MTU,
        AttributeMask::DESTINATION_QP,
        AttributeMask::RECEIVE_PSN,
        AttributeMask::SEND_PSN,
        AttributeMask::READ_ATOMIC,
        AttributeMask::TIMEOUT,
    ];
    let modify = ModifyQueuePair {
        mask: mask.into_iter().fold(AttributeMask::NONE, AttributeMask::and).0,
        next_state: QpState::ReadyToSend,
        partition_key: sample.bth.partition_key,
        address_handle: 1,
        path_mtu: PathMtu::Bytes1024,
        destination_qp: sample.bth.destination_qp,
        receive_psn: first_psn.value(),
        send_psn: first_psn.value(),
        read_atomic: 16,
        timeout: 1,
        ..ModifyQueuePair::at_reset()
    };
    post(&mut monitor, CommandOpcode::ModifyQueuePair, number, Body::ModifyQueuePair(modify));
    monitor
}

/// Passes all frames of a flow through the monitors of both hosts. `change` may change what is sent.
fn judge(flow: &Flow, change: impl Fn(usize, &mut Vec<u8>)) -> (usize, Vec<Finding>) {
    let first = &flow.crossings[0].packet;
    let answer = flow.answers().next().map(|crossing| crossing.packet);
    let Some(answer) = answer else { return (0, Vec::new()) };
    let asks = answer.bth.destination_qp;
    let mut asking = monitor(first, asks, first.bth.psn);
    let mut answering = monitor(&answer, flow.number, first.bth.psn);
    let (mut findings, mut count, mut newest) = (Vec::new(), 0, first.bth.psn);
    for (place, crossing) in flow.crossings.iter().enumerate() {
        let mut frame = crossing.frame.to_vec();
        change(place, &mut frame);
        let (from, to) =
            if crossing.is_request { (&mut asking, &mut answering) } else { (&mut answering, &mut asking) };
        let now_ps = place as u64 * FRAME_PS;
        // Linux also repeats what is acknowledged while its timer fires, which a capture does not explain.
        let psn = crossing.packet.bth.psn;
        if crossing.is_request && psn.is_before(newest) {
            from.fault();
        } else if crossing.is_request {
            newest = psn;
        }
        findings.extend(from.sent(now_ps, &frame));
        let unexplained = from.explain(from.unexplained(), 0);
        findings.extend(unexplained.into_iter().map(|(_, finding)| finding));
        to.received(now_ps, &frame, false);
        count += 1;
    }
    findings.retain(|finding| !CHOICES.contains(&finding.rule));
    (count, findings)
}

fn capture(name: &str) -> Capture {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/vectors/{name}.pcap"));
    Capture::read(&path).unwrap()
}

#[test]
fn good_traffic_of_linux_breaks_no_rule() {
    let mut frames = 0;
    for name in CAPTURES {
        let capture = capture(name);
        for flow in Flow::of(&capture) {
            let (count, findings) = judge(&flow, |_, _| {});
            assert!(findings.is_empty(), "{name}, to QP {:#x}: {}", flow.number, findings[0]);
            frames += count;
        }
    }
    assert!(frames > 150, "only {frames} frames were judged");
}

/// One byte of one frame is changed and all of that frame is judged again, at each place of the capture.
#[test]
fn a_changed_byte_of_any_frame_is_found() {
    let capture = capture("rxe_rc_read_5000");
    for flow in Flow::of(&capture) {
        for place in 0..flow.crossings.len() {
            for byte in [0, 6, 26, 34, 42, 46, 51] {
                let (_, findings) = judge(&flow, |at, frame| {
                    if at == place {
                        frame[byte] ^= 0x11;
                    }
                });
                assert!(!findings.is_empty(), "byte {byte} of frame {place} to QP {:#x}", flow.number);
            }
        }
    }
}
