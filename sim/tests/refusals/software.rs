//! Invalid doorbells and commands of software.
use crate::rig::{IPV4, Rig, path_to_peer};
use anyhow::{Context, Result, ensure};
use rnic_driver::{Error, RemoteRights};
use rnic_layout::admin::{
    Body, COMMAND_BYTES, Command, CommandHeader, CommandOpcode, CommandStatus, CreateAddressHandle,
    CreateCompletionQueue, CreateEventQueue, CreateQueuePair, CreateRegion, ModifyQueuePair, Query,
    RegionKind, Translation,
};
use rnic_layout::doorbell::{
    Arm, COMPLETION, CompletionDoorbell, Doorbell, EVENT, EventDoorbell, PUSH_PAGES_OFFSET, RECEIVE, SEND,
    SHARED_RECEIVE, WorkDoorbell, offset_in_bar,
};
use rnic_layout::path::Pmtu;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::state::{AttributeMask, QpState, Service};
use rnic_layout::wire::PacketRepr;
use rnic_machine::host::{Access, Bar as Window, Operation, RegisterAccess};
use std::collections::BTreeMap;

/// Doorbell pages that the card has.
const PAGES: u32 = 1 << rnic_messages::sizes::DOORBELL_PAGE_BITS;
/// Doorbell pages in BAR 2.
const PAGES_IN_BAR: u32 = 1 << rnic_layout::limits::DOORBELL_PAGES_LOG2_MAX;

fn number(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

fn work(object_number: u32, producer_index: u16) -> Result<u64> {
    Ok(number(WorkDoorbell { object_number, producer_index }.to_bytes()?))
}

/// Doorbells that do nothing, each counted once.
pub(crate) fn doorbells(rig: &mut Rig) -> Result<usize> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let own = queue_pair.number();
    // The same index in the card's table.
    let other = own ^ 0x80_0000;
    let completion = |object_number: u32| -> Result<u64> {
        Ok(number(CompletionDoorbell { object_number, arm: Arm::Next, consumer_index: 3 }.to_bytes()?))
    };
    let event = |object_number: u32| -> Result<u64> {
        Ok(number(EventDoorbell { object_number, arm: true, consumer_index: 3 }.to_bytes()?))
    };
    const WHOLE: u8 = 0xff;
    const LOW: u8 = 0x0f;
    const HIGH: u8 = 0xf0;
    const UNKNOWN: &str = "doorbell_unknown";
    const FOREIGN: &str = "doorbell_foreign";
    const TORN: &str = "doorbell_torn";
    let at = |page: u32, doorbell: &Doorbell| offset_in_bar(page, doorbell);
    let one = |name: &'static str, offset: u64, value: u64, strobe: u8, counter: &'static str| {
        (name, vec![(offset, value, strobe)], counter)
    };
    let queue = rig.sends.number();
    let cases = vec![
        one("send, another queue pair of the same index", at(0, &SEND), work(other, 1)?, WHOLE, UNKNOWN),
        one(
            "receive, another queue pair of the same index",
            at(0, &RECEIVE),
            work(other, 1)?,
            WHOLE,
            UNKNOWN,
        ),
        one("send, no queue pair", at(0, &SEND), work(own ^ 0x2aa, 1)?, WHOLE, UNKNOWN),
        one("send, from another page", at(1, &SEND), work(own, 1)?, WHOLE, FOREIGN),
        one("send, from the last page", at(PAGES - 1, &SEND), work(own, 1)?, WHOLE, FOREIGN),
        one("receive, from another page", at(1, &RECEIVE), work(own, 1)?, WHOLE, FOREIGN),
        one("completion queue, from another page", at(2, &COMPLETION), completion(queue)?, WHOLE, FOREIGN),
        one(
            "completion queue beyond the table",
            at(0, &COMPLETION),
            completion(queue + 1024)?,
            WHOLE,
            UNKNOWN,
        ),
        one("no completion queue", at(0, &COMPLETION), completion(77)?, WHOLE, UNKNOWN),
        one("event queue 0, from another page", at(3, &EVENT), event(0)?, WHOLE, FOREIGN),
        one("no event queue", at(0, &EVENT), event(9)?, WHOLE, UNKNOWN),
        one("event queue beyond the table", at(0, &EVENT), event(32)?, WHOLE, UNKNOWN),
        one("shared receive queue", at(0, &SHARED_RECEIVE), work(own, 1)?, WHOLE, UNKNOWN),
        one("an offset without a doorbell", at(0, &EVENT) + 8, work(own, 1)?, WHOLE, UNKNOWN),
        one("a push page", PUSH_PAGES_OFFSET, work(own, 1)?, WHOLE, UNKNOWN),
        one("the end of a page", at(1, &SEND) - 8, work(own, 1)?, WHOLE, UNKNOWN),
        one("a page that is not there", at(PAGES, &SEND), work(own, 1)?, WHOLE, UNKNOWN),
        one("the last doorbell page of the BAR", at(PAGES_IN_BAR - 1, &SEND), work(own, 1)?, WHOLE, UNKNOWN),
        one("a high half alone", at(0, &SEND), work(own, 1)?, HIGH, TORN),
        one("two bytes", at(0, &SEND), work(own, 1)?, 0x03, TORN),
        one("four bytes in the middle", at(0, &SEND), work(own, 1)?, 0x3c, TORN),
        one("seven bytes", at(0, &SEND), work(own, 1)?, 0x7f, TORN),
        (
            "the high half of another doorbell",
            vec![(at(0, &SEND), work(own, 1)?, LOW), (at(0, &RECEIVE), work(own, 1)?, HIGH)],
            TORN,
        ),
        (
            "two halves, and between them the low half of another doorbell",
            vec![
                (at(8, &SEND), work(own, 1)?, LOW),
                (at(8, &RECEIVE), work(other, 1)?, LOW),
                (at(8, &SEND), work(own, 1)?, HIGH),
            ],
            FOREIGN,
        ),
        (
            "the high half in another page",
            vec![(at(4, &SEND), work(own, 1)?, LOW), (at(5, &SEND), work(own, 1)?, HIGH)],
            TORN,
        ),
        (
            "two halves for another queue pair",
            vec![(at(6, &SEND), work(other, 1)?, LOW), (at(6, &SEND), work(other, 1)?, HIGH)],
            UNKNOWN,
        ),
        (
            "a second high half",
            vec![
                (at(7, &SEND), work(own, 1)?, LOW),
                (at(7, &SEND), work(own, 1)?, HIGH),
                (at(7, &SEND), work(own, 1)?, HIGH),
            ],
            "both",
        ),
    ];
    let count = cases.len();
    rig.moved()?;
    for (name, writes, counter) in cases {
        for (offset, value, strobe) in writes {
            let operation = Operation::Write { value, strobe };
            let access = RegisterAccess { bar: Window::Doorbells, offset, operation };
            rig.world().start_access(0, access, true);
        }
        ensure!(rig.exchange().with_context(|| name)?.is_empty(), "{name}: something completes");
        let expected = match counter {
            "both" => BTreeMap::from([(FOREIGN, 1), (TORN, 1)]),
            counter => BTreeMap::from([(counter, 1)]),
        };
        let moved = rig.moved()?.named();
        ensure!(moved == expected, "{name}: counters {moved:?}, expected {expected:?}");
    }
    drop(queue_pair);
    Ok(count)
}

/// A producer index that claims more than the ring has fails the queue pair, and no WQE of the ring is executed. An
/// event reports it; other queue pairs that complete in the same queue go on.
pub(crate) fn overrun(rig: &mut Rig) -> Result<()> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let queue_pair = rig.connect(queue_pair, 0x61, IPV4, Pmtu::Bytes1024, 0)?;
    rig.moved()?;
    let (offset, value) = (offset_in_bar(0, &SEND), work(queue_pair.number(), 65)?);
    rig.world().post_register(0, Window::Doorbells, offset, value);
    ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
    let told = rig.wait("the failure", |rig| rig.event())?;
    let expected = (queue_pair.number(), AsyncEvent::QueuePairFatal);
    ensure!((told.object_number, told.code) == expected, "the driver hears {told:?}");
    ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
    let moved = rig.moved()?;
    ensure!(moved.named() == BTreeMap::from([("work_refused", 1)]), "{moved:?}");
    ensure!(moved.of("completions_in_error") == 0 && moved.of("completions_written") == 4, "{moved:?}");
    ensure!(rig.heard().iter().all(|frame| !is_for(frame, 0x61)), "something was sent");
    Ok(())
}

fn is_for(frame: &[u8], number: u32) -> bool {
    PacketRepr::parse(frame).is_ok_and(|packet| packet.bth.destination_qp == number)
}

fn bytes(opcode: CommandOpcode, object_number: u32, body: Body) -> Result<[u8; COMMAND_BYTES]> {
    Ok(Command { header: CommandHeader { opcode, tag: 0, object_number }, body }.to_bytes()?)
}

/// Sets bits of a body to a number that no driver could write.
fn with(
    mut command: [u8; COMMAND_BYTES],
    record: &rnic_layout::field::Record,
    field: &str,
    value: u64,
) -> [u8; COMMAND_BYTES] {
    let field = record.field(field);
    for bit in 0..field.width {
        let place = 64 + (field.offset + bit) as usize;
        let (byte, mask) = (&mut command[place / 8], 1 << (place % 8));
        *byte = if value >> bit & 1 == 1 { *byte | mask } else { *byte & !mask };
    }
    command
}

/// Device addresses that the driver never comes to: of a list of pages, and of nothing.
const LIST: u64 = 0x7000_0000_0000;
const NO_LIST: u64 = LIST + 4096;

/// Commands that are refused, each with its code.
pub(crate) fn commands(rig: &mut Rig) -> Result<usize> {
    use CommandOpcode as Op;
    use CommandStatus as Status;

    let other_domain = rig.device.create_protection_domain()?;
    // Handles are numbered from zero on.
    let foreign_handle = other_domain.create_address_handle(&path_to_peer(IPV4))?;
    let region = rig.domain.allocate(4096)?;
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let (own, queue) = (queue_pair.number(), rig.sends.number());
    let free = own ^ 0x155;
    const FREE_QUEUE: u32 = 700;
    const FREE_EVENTS: u32 = 30;
    const FREE_HANDLE: u32 = 200;

    let completions = CreateCompletionQueue { base: 0x1000_0000, ..CreateCompletionQueue::at_reset() };
    let create_cq = |body| bytes(Op::CreateCompletionQueue, FREE_QUEUE, Body::CreateCompletionQueue(body));
    let cq = CreateCompletionQueue::RECORD;
    let good_cq = create_cq(completions)?;
    let events = CreateEventQueue { base: 0x1000_0000, ..CreateEventQueue::at_reset() };
    let create_eq = |number, body| bytes(Op::CreateEventQueue, number, Body::CreateEventQueue(body));
    let pairs = CreateQueuePair {
        service: Service::ReliableConnected,
        domain: rig.domain.number(),
        send_completion_queue: queue,
        receive_completion_queue: queue,
        send_base: 0x1000_0000,
        receive_base: 0x1001_0000,
        ..CreateQueuePair::at_reset()
    };
    let create_qp = |number, body| bytes(Op::CreateQueuePair, number, Body::CreateQueuePair(body));
    let qp = CreateQueuePair::RECORD;
    let modify = |number, body| bytes(Op::ModifyQueuePair, number, Body::ModifyQueuePair(body));
    let to = |next_state, mask: AttributeMask| ModifyQueuePair {
        mask: mask.and(AttributeMask::STATE).0,
        next_state,
        port: 1,
        ..ModifyQueuePair::at_reset()
    };
    let to_receive =
        rnic_layout::state::transition(Service::ReliableConnected, QpState::Init, QpState::ReadyToReceive);
    let needed = to_receive.context("there is such a transition")?.required;
    let memory = CreateRegion {
        kind: RegionKind::Region,
        local_write: true,
        translation: Translation::Contiguous,
        domain: rig.domain.number(),
        first_address: 0x7000,
        length: 4096,
        translation_base: 0x1000_0000,
        ..CreateRegion::at_reset()
    };
    let pages = CreateRegion { translation: Translation::PageList, ..memory };
    // A list of what is no page.
    {
        let mut world = rig.world();
        let host = world.host_mut(0).memory_mut();
        let list = host.allocate(4096);
        host.buffer_mut(list)?[..8].copy_from_slice(&0x1000_0001_u64.to_le_bytes());
        host.map(LIST, list, 0, 4096, Access::Read)?;
    }
    let free_key = region.key() ^ 0x15500;
    let create_mr = |key, body| bytes(Op::CreateRegion, key, Body::CreateRegion(body));
    let mr = CreateRegion::RECORD;
    let handle = CreateAddressHandle { domain: 1, ..CreateAddressHandle::at_reset() };
    let create_ah = |number| bytes(Op::CreateAddressHandle, number, Body::AddressHandle(handle));
    let query = |opcode, number, buffer, buffer_bytes| {
        bytes(opcode, number, Body::Query(Query { buffer, buffer_bytes }))
    };
    let destroy = |opcode, number| bytes(opcode, number, Body::Destroy);
    let nothing = bytes(Op::Nothing, 0, Body::Nothing)?;
    let with_byte = |place: usize, value: u8| {
        let mut command = nothing;
        command[place] = value;
        command
    };

    let cases: Vec<(&str, [u8; COMMAND_BYTES], Status)> = vec![
        ("opcode 0x7f", with_byte(0, 0x7f), Status::UnknownOpcode),
        ("opcode 0xff", with_byte(0, 0xff), Status::UnknownOpcode),
        (
            "shared receive queue: no entries",
            with_byte(0, Op::CreateSharedReceiveQueue.number()),
            Status::ValueNotAllowed,
        ),
        ("no shared receive queue", destroy(Op::DestroySharedReceiveQueue, 3)?, Status::DoesNotExist),
        (
            "shared receive queue beyond the table",
            destroy(Op::DestroySharedReceiveQueue, 64)?,
            Status::NumberOutOfRange,
        ),
        (
            "query no shared receive queue",
            query(Op::QuerySharedReceiveQueue, 63, 0, 64)?,
            Status::DoesNotExist,
        ),
        (
            "queue pair: no shared receive queue",
            create_qp(free, CreateQueuePair { shared_receive: true, shared_receive_queue: 5, ..pairs })?,
            Status::ReferenceDoesNotExist,
        ),
        (
            "queue pair: shared receive queue beyond the table",
            create_qp(free, CreateQueuePair { shared_receive_queue: 64, ..pairs })?,
            Status::ReferenceDoesNotExist,
        ),
        ("reserved bit of the header", with_byte(1, 0x40), Status::ReservedNotZero),
        ("reserved bit of the body", with_byte(63, 0x80), Status::ReservedNotZero),
        ("completion queue: small ring", with(good_cq, &cq, "entries_log2", 5), Status::ValueNotAllowed),
        ("completion queue: large ring", with(good_cq, &cq, "entries_log2", 23), Status::ValueNotAllowed),
        ("completion queue: page", with(good_cq, &cq, "doorbell_page", 256), Status::ValueNotAllowed),
        ("completion queue: ring base", with(good_cq, &cq, "base", 0x1000_0800), Status::Misaligned),
        (
            "completion queue: no event queue",
            with(good_cq, &cq, "event_queue", 29),
            Status::ReferenceDoesNotExist,
        ),
        (
            "completion queue: event queue 255",
            with(good_cq, &cq, "event_queue", 255),
            Status::ReferenceDoesNotExist,
        ),
        (
            "completion queue beyond the table",
            bytes(Op::CreateCompletionQueue, 1024, Body::CreateCompletionQueue(completions))?,
            Status::NumberOutOfRange,
        ),
        (
            "completion queue exists",
            bytes(Op::CreateCompletionQueue, queue, Body::CreateCompletionQueue(completions))?,
            Status::AlreadyExists,
        ),
        ("completion queue in use", destroy(Op::DestroyCompletionQueue, queue)?, Status::Busy),
        ("no completion queue", destroy(Op::DestroyCompletionQueue, FREE_QUEUE)?, Status::DoesNotExist),
        (
            "query no completion queue",
            query(Op::QueryCompletionQueue, FREE_QUEUE, 0, 64)?,
            Status::DoesNotExist,
        ),
        ("query: buffer", query(Op::QueryCompletionQueue, queue, 0x20, 64)?, Status::Misaligned),
        ("query: room", query(Op::QueryCompletionQueue, queue, 0, 63)?, Status::SizeNotAllowed),
        ("query of a queue pair: room", query(Op::QueryQueuePair, own, 0, 191)?, Status::SizeNotAllowed),
        ("event queue 0", create_eq(0, events)?, Status::AlreadyExists),
        ("event queue beyond the table", create_eq(32, events)?, Status::NumberOutOfRange),
        (
            "event queue: ring base",
            create_eq(FREE_EVENTS, CreateEventQueue { base: 0x40, ..events })?,
            Status::Misaligned,
        ),
        ("event queue 0 is the registers'", destroy(Op::DestroyEventQueue, 0)?, Status::Busy),
        ("no event queue", destroy(Op::DestroyEventQueue, FREE_EVENTS)?, Status::DoesNotExist),
        ("queue pair exists", create_qp(own, pairs)?, Status::AlreadyExists),
        ("a queue pair of this index exists", create_qp(own ^ 0x80_0000, pairs)?, Status::AlreadyExists),
        ("queue pair beyond 24 bits", create_qp(0x0100_0000 | free, pairs)?, Status::NumberOutOfRange),
        ("queue pair: no service", with(create_qp(free, pairs)?, &qp, "service", 2), Status::ValueNotAllowed),
        ("queue pair: service", with(create_qp(free, pairs)?, &qp, "service", 3), Status::NotSupported),
        (
            "queue pair: slots",
            with(create_qp(free, pairs)?, &qp, "send_slots_log2", 5),
            Status::ValueNotAllowed,
        ),
        (
            "queue pair: entries",
            with(create_qp(free, pairs)?, &qp, "receive_wqes_log2", 0),
            Status::ValueNotAllowed,
        ),
        (
            "queue pair: send base",
            with(create_qp(free, pairs)?, &qp, "send_base", 0x1000_0fc0),
            Status::Misaligned,
        ),
        (
            "queue pair: receive base",
            with(create_qp(free, pairs)?, &qp, "receive_base", 1),
            Status::Misaligned,
        ),
        (
            "queue pair: no completion queue",
            create_qp(free, CreateQueuePair { receive_completion_queue: FREE_QUEUE, ..pairs })?,
            Status::ReferenceDoesNotExist,
        ),
        (
            "queue pair: completion queue beyond the table",
            create_qp(free, CreateQueuePair { send_completion_queue: queue + 1024, ..pairs })?,
            Status::ReferenceDoesNotExist,
        ),
        ("no queue pair", destroy(Op::DestroyQueuePair, free)?, Status::DoesNotExist),
        (
            "another queue pair of this index",
            destroy(Op::DestroyQueuePair, own ^ 0x80_0000)?,
            Status::DoesNotExist,
        ),
        (
            "modify another queue pair of this index",
            modify(own ^ 0x80_0000, to(QpState::Error, AttributeMask::NONE))?,
            Status::DoesNotExist,
        ),
        (
            "from INIT to RTS",
            modify(own, to(QpState::ReadyToSend, AttributeMask::NONE))?,
            Status::TransitionNotAllowed,
        ),
        (
            "from INIT to SQD",
            modify(own, to(QpState::SendQueueDrain, AttributeMask::NONE))?,
            Status::TransitionNotAllowed,
        ),
        (
            "from another state than said",
            modify(
                own,
                ModifyQueuePair {
                    current_state: QpState::ReadyToSend,
                    ..to(QpState::Error, AttributeMask::CURRENT_STATE)
                },
            )?,
            Status::StateMismatch,
        ),
        (
            "to RTR with nothing",
            modify(own, to(QpState::ReadyToReceive, AttributeMask::NONE))?,
            Status::AttributeMissing,
        ),
        (
            "to RTR without PSN",
            modify(
                own,
                ModifyQueuePair {
                    destination_qp: 5,
                    path_mtu: rnic_layout::state::PathMtu::Bytes1024,
                    ..to(QpState::ReadyToReceive, AttributeMask(needed.0 & !AttributeMask::RECEIVE_PSN.0))
                },
            )?,
            Status::AttributeMissing,
        ),
        (
            "to ERR with a PSN",
            modify(own, to(QpState::Error, AttributeMask::SEND_PSN))?,
            Status::AttributeNotAllowed,
        ),
        (
            "to RTR with a handle of another domain",
            modify(
                own,
                ModifyQueuePair {
                    destination_qp: 5,
                    path_mtu: rnic_layout::state::PathMtu::Bytes1024,
                    address_handle: foreign_handle.number(),
                    ..to(QpState::ReadyToReceive, needed)
                },
            )?,
            Status::DomainMismatch,
        ),
        (
            "to RTR with no handle",
            modify(
                own,
                ModifyQueuePair {
                    destination_qp: 5,
                    path_mtu: rnic_layout::state::PathMtu::Bytes1024,
                    address_handle: FREE_HANDLE,
                    ..to(QpState::ReadyToReceive, needed)
                },
            )?,
            Status::ReferenceDoesNotExist,
        ),
        ("region exists", create_mr(region.key(), memory)?, Status::AlreadyExists),
        ("a region of this index exists", create_mr(region.key() ^ 1, memory)?, Status::AlreadyExists),
        ("region of no kind", with(create_mr(free_key, memory)?, &mr, "kind", 0), Status::ValueNotAllowed),
        ("window", with(create_mr(free_key, memory)?, &mr, "kind", 3), Status::NotSupported),
        ("lists of lists", with(create_mr(free_key, memory)?, &mr, "translation", 2), Status::NotSupported),
        (
            "pages of no size",
            with(create_mr(free_key, memory)?, &mr, "page_log2", 31),
            Status::ValueNotAllowed,
        ),
        (
            "a list in the middle of a page",
            create_mr(free_key, CreateRegion { translation_base: 0x1000_0800, ..pages })?,
            Status::Misaligned,
        ),
        (
            "a first byte beyond the first page",
            create_mr(free_key, CreateRegion { first_offset: 4096, ..pages })?,
            Status::ValueNotAllowed,
        ),
        (
            "more pages than entries",
            create_mr(free_key, CreateRegion { first_entry: 0x3fff, first_offset: 1, ..pages })?,
            Status::RangeNotAllowed,
        ),
        (
            "an entry for contiguous memory",
            create_mr(free_key, CreateRegion { first_entry: 1, ..memory })?,
            Status::ValueNotAllowed,
        ),
        (
            "a place in a page for contiguous memory",
            create_mr(free_key, CreateRegion { first_offset: 1, ..memory })?,
            Status::ValueNotAllowed,
        ),
        (
            "pages that are none",
            create_mr(free_key, CreateRegion { translation_base: LIST, ..pages })?,
            Status::Misaligned,
        ),
        (
            "a list that is not there",
            create_mr(free_key, CreateRegion { translation_base: NO_LIST, ..pages })?,
            Status::HostError,
        ),
        (
            "contiguous memory where pages are",
            create_mr(free_key, CreateRegion { translation_base: (1 << 63) - 4095, ..memory })?,
            Status::RangeNotAllowed,
        ),
        (
            "remote write without local write",
            create_mr(free_key, CreateRegion { local_write: false, remote_write: true, ..memory })?,
            Status::RightsContradict,
        ),
        (
            "region round the end",
            create_mr(free_key, CreateRegion { first_address: u64::MAX - 4000, ..memory })?,
            Status::RangeNotAllowed,
        ),
        (
            "memory round the end",
            create_mr(free_key, CreateRegion { translation_base: u64::MAX - 4000, ..memory })?,
            Status::RangeNotAllowed,
        ),
        (
            "zero-based, from somewhere",
            create_mr(free_key, CreateRegion { zero_based: true, ..memory })?,
            Status::ValueNotAllowed,
        ),
        ("no region", destroy(Op::DestroyRegion, free_key)?, Status::DoesNotExist),
        ("another variant of the key", destroy(Op::DestroyRegion, region.key() ^ 1)?, Status::DoesNotExist),
        ("handle exists", create_ah(foreign_handle.number())?, Status::AlreadyExists),
        ("handle beyond the table", create_ah(256)?, Status::NumberOutOfRange),
        ("no handle", destroy(Op::DestroyAddressHandle, FREE_HANDLE)?, Status::DoesNotExist),
        ("query to nowhere", query(Op::QueryCompletionQueue, queue, 0, 64)?, Status::HostError),
    ];
    let count = cases.len();
    let mut failures = Vec::new();
    for (name, command, status) in cases {
        if let Err(error) = refuse(rig, command, status) {
            failures.push(format!("{name}: {error:#}"));
            rig.settle()?;
        }
    }
    ensure!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    drop((queue_pair, region, foreign_handle));
    Ok(count)
}

fn refuse(rig: &mut Rig, command: [u8; COMMAND_BYTES], status: CommandStatus) -> Result<()> {
    rig.moved()?;
    rig.interposer.replace_next(command);
    // Any command serves.
    let told = rig.domain.create_address_handle(&path_to_peer(IPV4));
    let answer = rig.interposer.answer()?;
    ensure!(answer.status == status, "{answer:?}, expected {status:?}");
    ensure!(answer.opcode == command[0], "{answer:?}");
    let object_number = u32::from_le_bytes([command[4], command[5], command[6], command[7]]);
    ensure!(answer.object_number == object_number, "{answer:?}");
    match told {
        Err(Error::Command(told)) => ensure!(told.status == status, "the driver hears {told}"),
        told => anyhow::bail!("the driver hears {told:?}"),
    }
    ensure!(rig.exchange()?.is_empty(), "something completes");
    let moved = rig.moved()?;
    let mut expected = BTreeMap::from([("commands_refused", 1)]);
    if status == CommandStatus::HostError {
        let is_list = command[0] == CommandOpcode::CreateRegion.number();
        expected.insert(if is_list { "host_read_errors" } else { "host_write_errors" }, 1);
        let faults = rig.world().host_mut(0).memory_mut().take_faults();
        let first = if is_list { NO_LIST } else { 0 };
        ensure!(faults.len() == 1 && (first..first + 64).contains(&faults[0].address), "{faults:x?}");
    }
    ensure!(moved.named() == expected, "counters {:?}, expected {expected:?}", moved.named());
    ensure!(moved.of("commands_executed") == 0, "{moved:?}");
    Ok(())
}
