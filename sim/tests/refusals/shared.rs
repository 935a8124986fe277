//! Clients of a shared receive queue that end in the middle of a message.
use crate::rig::{IPV4, RECEIVE_BYTES, RECEIVE_TAG, Rig, path_to_card};
use anyhow::{Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, QueuePair, QueuePairOptions, ReceiveRequest, RemoteRights, SharedReceiveQueue,
    SharedReceiveQueueOptions,
};
use rnic_endpoint::packet::Packet;
use rnic_layout::opcode::{Operation, Transport};
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;
use rnic_layout::wire::BthRepr;

/// QPN of the clients, which the endpoint does not have.
const CLIENT: u32 = 0x61;
/// Receives of the SRQ, fewer than there are clients.
const RECEIVES: u64 = 3;
const CLIENTS: u64 = 2 * RECEIVES + 1;
/// Bytes of each receive: more than the first packet of a message.
const ROOM: usize = 1000;
const PMTU: Pmtu = Pmtu::Bytes256;

fn new_client(rig: &Rig, shared: &SharedReceiveQueue) -> Result<QueuePair<ReadyToSend>> {
    let options = QueuePairOptions::default();
    let queue_pair = rig.domain.create_queue_pair_with_srq(&rig.sends, &rig.receives, shared, &options)?;
    let queue_pair = queue_pair.initialize(RemoteRights::NONE).map_err(rnic_driver::Error::from)?;
    rig.connect(queue_pair, CLIENT, IPV4, PMTU, 0)
}

/// A packet of a SEND with payload of one value.
fn packet(number: u32, operation: Operation, psn: u32, bytes: usize) -> Vec<u8> {
    let code = Transport::Rc.base() | operation.code();
    let bth = BthRepr { ack_request: true, ..BthRepr::new(code, number, Psn::wrapping(psn)) };
    Packet::new(bth, Vec::new(), vec![0x77; bytes]).frame(&path_to_card(IPV4), 1)
}

/// The next completion of the shared receives, with its memory.
fn next(rig: &mut Rig, what: &str) -> Result<Completion> {
    rig.wait(what, |rig| Ok(rig.receives.poll_one()?))
}

/// Each client sends the first packet of a SEND and ends, by itself or by the application. Its receive comes back, so that the
/// last client finds one; other receives are not affected, and nobody hears of a queue pair that the application has dropped.
pub(crate) fn clients_that_end(rig: &mut Rig) -> Result<()> {
    let shared = rig.domain.create_shared_receive_queue(&SharedReceiveQueueOptions::default())?;
    for wr_id in 0..RECEIVES {
        let request = ReceiveRequest::new(wr_id | RECEIVE_TAG).sge(rig.domain.allocate(ROOM)?);
        shared.post_receive(request)?;
    }
    rig.device.check()?;
    for client in 0..CLIENTS {
        let queue_pair = new_client(rig, &shared)?;
        let number = queue_pair.number();
        rig.send(&[packet(number, Operation::SendFirst, 0, PMTU.bytes() as usize)]);
        // The packet has arrived when a later message of the same wire has.
        rig.exchange()?;
        let early = rig.receives.poll_one()?;
        ensure!(early.is_none() && shared.in_flight() as u64 == RECEIVES, "client {client}: {early:?}");
        let what = "the receive of a client that has ended";
        let (status, done) = if client % 3 == 1 {
            // MIDDLE is too short: the queue pair fails by itself, and its receive completes with the reason.
            rig.send(&[packet(number, Operation::SendMiddle, 1, 8)]);
            let done = next(rig, what)?;
            drop(queue_pair);
            (CompletionStatus::RemoteInvalidRequest, done)
        } else {
            if client % 3 == 2 {
                drop(queue_pair.reset().map_err(rnic_driver::Error::from)?);
            } else {
                drop(queue_pair);
            }
            (CompletionStatus::Flushed, next(rig, what)?)
        };
        ensure!((done.status, done.qp_number) == (status, number), "client {client}: {done:?}");
        let again = done.sg_list.into_iter().fold(ReceiveRequest::new(done.wr_id), ReceiveRequest::sge);
        shared.post_receive(again)?;
        rig.device.check()?;
        // One that fails by itself raises the event before it is dropped.
        while let Some(event) = rig.event()? {
            ensure!(client % 3 == 1 && event.object_number == number, "client {client}: {event:?}");
        }
    }
    let queue_pair = new_client(rig, &shared)?;
    rig.send(&[packet(queue_pair.number(), Operation::SendOnly, 0, RECEIVE_BYTES)]);
    let done = next(rig, "the message of the last client")?;
    ensure!(done.is_success() && done.message() == [0x77; RECEIVE_BYTES], "{done:?}");
    drop((queue_pair, done, shared));
    rig.settle()
}
