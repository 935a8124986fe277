//! An event queue that software does not read while it arms, and while queue pairs fail; and the events of queue pairs that are
//! destroyed, and of those whose communication is established.
use crate::asker::{Asker, FIRST_PSN};
use crate::rig::{IPV4, Rig, path_to_card, path_to_peer};
use anyhow::{Result, bail, ensure};
use rnic_driver::{
    AsynchronousEvent, CompletionQueueOptions, Error, QueuePairOptions, ReceiveOptions, ReceiveRequest,
    RemoteRights, SendOptions,
};
use rnic_endpoint::packet::Packet;
use rnic_layout::doorbell::{Arm, COMPLETION, CompletionDoorbell, SEND, WorkDoorbell, offset_in_bar};
use rnic_layout::opcode::Operation;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::event::AsyncEvent;
use rnic_layout::wire::extended::RethRepr;
use rnic_layout::wire::{BthRepr, ExtendedRepr};
use rnic_machine::host::Bar as Window;
use std::collections::BTreeSet;

/// log2 of the EQEs of event queue 0.
pub(crate) const EQES_LOG2: u32 = 6;
const EQES: u64 = 1 << EQES_LOG2;
/// Doorbells that arm a completion queue which has a CQE.
const ARMINGS: usize = 300;
/// Queue pairs that fail.
const FAILURES: u32 = 40;
/// QPN that no queue pair has.
const NOBODY: u32 = 0x7f_ff00;
/// Completion events that may come although half of the queue is unread.
const LATE: u64 = 16;

/// A queue pair is destroyed while its peer provokes a failure: what its event queue has when the command is answered is all that it
/// ever has of it.
pub(crate) fn of_destroyed_queue_pairs(rig: &mut Rig) -> Result<()> {
    let window = rig.domain.share(64, RemoteRights::ALL)?;
    let (mut told, mut silent) = (0, 0);
    let nobody = BthRepr::new(Operation::SendOnly.code(), NOBODY, Psn::ZERO);
    let nobody = Packet::new(nobody, Vec::new(), vec![0; 256]).frame(&path_to_card(IPV4), 1);
    for before in 0..40 {
        let asker = Asker::connect(rig, IPV4, Pmtu::Bytes256, window.remote(), 1)?;
        let number = asker.queue_pair.number();
        // In no WRITE, and after frames that take time on the wire only.
        let wrong = asker.frame(Operation::WriteMiddle, FIRST_PSN, Vec::new(), vec![1; 256]);
        rig.send(&vec![nobody.clone(); before]);
        rig.send(&[wrong]);
        drop(asker);
        let mut heard = Vec::new();
        while let Some(event) = rig.event()? {
            ensure!(event.object_number == number, "{event:?}, not of {number:#x}");
            heard.push(event.code);
        }
        ensure!(heard.iter().all(|code| *code == AsyncEvent::QueuePairRequestError), "{heard:?}");
        *(if heard.is_empty() { &mut silent } else { &mut told }) += 1;
        rig.idle(60);
        if let Some(late) = rig.event()? {
            bail!("{late:?} came after the queue pair had been destroyed, with {before} frames before");
        }
    }
    ensure!(told > 0 && silent > 0, "{told} have failed before their end, {silent} have not");
    rig.settle()
}

/// Software hears once that communication is established, of a queue pair in RTR whose peer sends: not of a packet that is not
/// executed, not again in that life, and not of a queue pair that is in RTS before its peer sends.
pub(crate) fn of_established_queue_pairs(rig: &mut Rig) -> Result<()> {
    const PEER: u32 = 0x5c;
    const FIRST: u32 = 0xff_ffff;
    let window = rig.domain.share(64, RemoteRights::ALL)?;
    let address = rig.domain.create_address_handle(&path_to_peer(IPV4))?;
    let receive = ReceiveOptions {
        path_mtu: Pmtu::Bytes256,
        destination_qp: PEER,
        receive_psn: FIRST,
        min_rnr_timer: 0,
        destination_read_atomic: None,
    };
    let sends = |rig: &mut Rig, number: u32, psn: u32| -> Result<Vec<AsynchronousEvent>> {
        let reth = RethRepr {
            virtual_address: window.remote().address,
            remote_key: window.remote().key,
            dma_length: 8,
        };
        let bth = BthRepr::new(Operation::WriteOnly.code(), number, Psn::wrapping(psn));
        let packet = Packet::new(bth, vec![ExtendedRepr::Reth(reth)], vec![3; 8]);
        rig.send(&[packet.frame(&path_to_card(IPV4), 1)]);
        rig.idle(60);
        std::iter::from_fn(|| rig.event().transpose()).collect()
    };
    let mut queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
    let number = queue_pair.number();
    for life in 0..2 {
        let ready = queue_pair.ready_to_receive(&address, &receive).map_err(Error::from)?;
        let early = sends(rig, number, FIRST + 1)?;
        ensure!(early.is_empty(), "life {life}: a packet after a gap is not executed: {early:?}");
        let told = sends(rig, number, FIRST)?;
        let [event] = &told[..] else { bail!("life {life}: the first packet, and {told:?}") };
        let is_right = event.code == AsyncEvent::CommunicationEstablished && event.object_number == number;
        ensure!(is_right, "life {life}: {event:?}");
        let again = sends(rig, number, 0)?;
        ensure!(again.is_empty(), "life {life}: the second packet, and {again:?}");
        let sending = ready.ready_to_send(&SendOptions::default()).map_err(Error::from)?;
        let later = sends(rig, number, 1)?;
        ensure!(later.is_empty(), "life {life}: a packet in RTS, and {later:?}");
        let reset = sending.reset().map_err(Error::from)?;
        queue_pair = reset.initialize(RemoteRights::ALL).map_err(Error::from)?;
    }
    let ready = queue_pair.ready_to_receive(&address, &receive).map_err(Error::from)?;
    let _sending = ready.ready_to_send(&SendOptions::default()).map_err(Error::from)?;
    let told = sends(rig, number, FIRST)?;
    ensure!(told.is_empty(), "software has connected it before: {told:?}");
    rig.moved()?;
    rig.settle()
}

/// Arms a completion queue many times and lets queue pairs fail, and reads no event meanwhile. The card goes on, no completion
/// event is lost, and the driver hears how many asynchronous events were.
pub(crate) fn unread(rig: &mut Rig) -> Result<()> {
    let connected =
        |number| rig.connect(rig.new_queue_pair(RemoteRights::NONE)?, number, IPV4, Pmtu::Bytes1024, 0);
    let failing = (0x80..0x80 + FAILURES).map(connected).collect::<Result<Vec<_>>>()?;
    let queue =
        rig.device.create_completion_queue(&rig.device.events(), &CompletionQueueOptions::default())?;
    let queue_pair = rig.domain.create_queue_pair(&queue, &queue, &QueuePairOptions::default())?;
    let mut queue_pair = queue_pair.initialize(RemoteRights::NONE).map_err(Error::from)?;
    queue_pair.post_receive(ReceiveRequest::new(5))?;
    let queue_pair = rig.connect(queue_pair, 0x71, IPV4, Pmtu::Bytes1024, 0)?;
    rig.moved()?;
    let queue_pair = queue_pair.fail().map_err(Error::from)?;
    rig.idle(50);
    ensure!(rig.event()?.is_none(), "software has caused the failure, so no event reports it");
    ensure!(rig.moved()?.of("completions_written") == 1, "the receive is flushed");

    // The CQE stays unread, so each arming asks for an event.
    let armed = CompletionDoorbell { object_number: queue.number(), arm: Arm::Next, consumer_index: 0 };
    let armed = u64::from_le_bytes(armed.to_bytes()?);
    for _ in 0..ARMINGS {
        rig.world().post_register(0, Window::Doorbells, offset_in_bar(0, &COMPLETION), armed);
        rig.idle(2);
    }
    rig.device.check()?;
    let moved = rig.moved()?;
    let written = moved.of("events_written");
    ensure!((EQES / 2..EQES / 2 + LATE).contains(&written), "armed: {moved:?}");
    ensure!(moved.of("event_queue_overrun") == 0, "armed: {moved:?}");

    // A doorbell that claims more WQEs than the ring has fails a queue pair.
    for queue_pair in &failing {
        let posted = WorkDoorbell { object_number: queue_pair.number(), producer_index: 0x8000 };
        let posted = u64::from_le_bytes(posted.to_bytes()?);
        rig.world().post_register(0, Window::Doorbells, offset_in_bar(0, &SEND), posted);
        rig.idle(20);
    }
    rig.device.check()?;
    let moved = rig.moved()?;
    let (written, lost) = (EQES - written, u64::from(FAILURES) - (EQES - written));
    ensure!(
        moved.of("events_written") == written && moved.of("event_queue_overrun") == lost,
        "failed: {moved:?}"
    );

    // Software reads: the events that are there, and how many were lost.
    let mut heard = Vec::new();
    let told = rig.wait("the number of lost events", |rig| match rig.device.events().poll() {
        Ok(event) => {
            heard.extend(event);
            Ok(None)
        }
        Err(Error::EventsLost { number: 0, count }) => Ok(Some(count)),
        Err(error) => bail!(error),
    })?;
    while let Some(event) = rig.event()? {
        heard.push(event);
    }
    ensure!(heard.iter().all(|event| event.code == AsyncEvent::QueuePairFatal), "{heard:?}");
    let heard: BTreeSet<_> = heard.iter().map(|event| event.object_number).collect();
    ensure!(told == lost && heard.len() as u64 == written, "{told} lost, {} heard", heard.len());
    // What the lost events said can be queried.
    for queue_pair in &failing {
        ensure!(queue_pair.has_failed()?, "{queue_pair:?}");
    }

    // The completion queue was armed while events had no room, so one more event has waited for the doorbell.
    ensure!(rig.moved()?.of("events_written") == 2, "the number of lost events, and the event of the queue");
    ensure!(queue.is_signalled()?);
    let flushed = queue.poll_one()?;
    ensure!(
        flushed.as_ref().is_some_and(|flushed| flushed.wr_id == 5 && !flushed.is_success()),
        "{flushed:?}"
    );
    queue.arm(Arm::Next);
    rig.idle(50);
    ensure!(!queue.is_signalled()?, "nothing is unread");
    ensure!(rig.exchange()?.is_empty(), "something completes elsewhere");
    drop((queue_pair, failing));
    Ok(())
}
