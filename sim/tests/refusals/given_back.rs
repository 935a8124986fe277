//! Memory that a SEND or WRITE in error gives back: what software puts there at once does not reach the peer, which knows nothing
//! of the error and takes what comes.
use crate::own_reads::{piece, response};
use crate::rig::{IPV4, Rig, UNTOUCHED};
use anyhow::{Context, Result, ensure};
use rnic_driver::state::ReadyToSend;
use rnic_driver::{QueuePair, RemoteMemory, RemoteRights, SendRequest};
use rnic_layout::opcode::Operation;
use rnic_layout::path::Pmtu;
use rnic_layout::psn::Psn;
use rnic_layout::queue::completion::CompletionStatus;

/// Queue pair of the peer, which the test plays.
const PLAYED: u32 = 0x35;
/// Requests of a packet each.
const REQUESTS: u64 = 8;
const BYTES: usize = 1024;
/// What software puts where the payload was.
const PRIVATE: u8 = !UNTOUCHED;
/// Time in which all that is on its way from the slow host has come.
const SETTLED_NS: u64 = 30_000;
/// As many bytes in a row of a frame are no accident.
const RUN: usize = 16;
/// AETH syndrome of a NAK, Remote Access Error.
const REFUSED: u8 = 0x62;

/// What ends the queue pair.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Software,
    /// The peer refuses the first request.
    Peer,
}

/// Reads of payload take long. A queue pair ends with many of them under way, and software uses memory as soon as it has its
/// CQE. Returns how many requests were flushed that the peer had not seen by then.
pub(crate) fn flushed_with_payload_on_its_way(rig: &mut Rig) -> Result<usize> {
    let mut unseen = 0;
    // The command of software takes as long as the WQEs to come from the host, the NAK of the peer does not.
    for (end, waits_ns) in
        [(End::Software, [0, 1_000, 2_500, 4_500]), (End::Peer, [6_000, 9_000, 12_000, 15_000])]
    {
        for wait_ns in waits_ns {
            unseen += flush(rig, end, wait_ns).with_context(|| format!("{end:?}, {wait_ns} ns"))?;
        }
    }
    rig.moved()?;
    Ok(unseen)
}

fn flush(rig: &mut Rig, end: End, wait_ns: u64) -> Result<usize> {
    let queue_pair = rig.new_queue_pair(RemoteRights::NONE)?;
    let info = queue_pair.info(IPV4)?;
    let mut queue_pair: QueuePair<ReadyToSend> = rig.connect(queue_pair, PLAYED, IPV4, Pmtu::Bytes1024, 0)?;
    rig.heard();
    let mut requests = Vec::new();
    for wr_id in 0..REQUESTS {
        let mut memory = piece(rig, 0, BYTES)?;
        memory.bytes_mut().fill(UNTOUCHED);
        let remote = RemoteMemory { address: 0x1000, key: 7, bytes: BYTES as u64 };
        let request =
            if wr_id % 2 == 0 { SendRequest::write(wr_id, remote) } else { SendRequest::send(wr_id) };
        requests.push(request.sge(memory).signalled());
    }
    let mut rest = requests.split_off(1);
    let mut heard = Vec::new();
    queue_pair.post_sends(&mut requests)?;
    if end == End::Peer {
        rig.wait("the first request", |rig| {
            heard.extend(rig.heard());
            Ok((!heard.is_empty()).then_some(()))
        })?;
    }
    queue_pair.post_sends(&mut rest)?;
    rig.step_ns(wait_ns)?;
    let failed = match end {
        End::Software => Some(queue_pair.fail().map_err(rnic_driver::Error::from)?),
        End::Peer => {
            let psn = Psn::wrapping(info.first_psn);
            rig.send(&[response(info.qp_number, Operation::Acknowledge, psn, REFUSED, Vec::new())]);
            None
        }
    };
    heard.extend(rig.heard());
    let seen = heard.len();
    // Software uses memory as soon as it has it.
    let mut memory = Vec::new();
    for wr_id in 0..REQUESTS {
        let done = rig.wait("a request", |rig| Ok(rig.sends.poll_one()?))?;
        let is_refused = end == End::Peer && wr_id == 0;
        let expected = if is_refused { CompletionStatus::RemoteAccess } else { CompletionStatus::Flushed };
        ensure!((done.wr_id, done.status) == (wr_id, expected), "{done:?}, {expected:?} was expected");
        for mut region in done.sg_list {
            region.bytes_mut().fill(PRIVATE);
            memory.push(region);
        }
    }
    rig.step_ns(SETTLED_NS)?;
    heard.extend(rig.heard());
    let is_private = |frame: &Vec<u8>| frame.windows(RUN).any(|bytes| bytes == [PRIVATE; RUN]);
    let leaked = heard.iter().position(is_private);
    ensure!(leaked.is_none(), "frame {leaked:?} has what was written after its CQE; {seen} were seen before");
    drop(failed);
    rig.settle()?;
    Ok((REQUESTS as usize).saturating_sub(seen))
}
