//! Hosts that report no write any more: the device fails in bounded time, and says so, since reports name no write and come in order.
use crate::faults::limit_host;
use crate::rig::{IPV4, PEER_KEY, Rig};
use anyhow::{Context, Result, ensure};
use rnic_driver::{Error, RemoteMemory, RemoteRights, SendRequest};
use rnic_endpoint::qp::{Data, Operation, SendWqe};
use rnic_layout::path::Pmtu;
use rnic_layout::registers::FatalCode;
use rnic_machine::host::HostOptions;
use rnic_stimulus::chance::Delay;
use std::time::Duration;

/// QPN of the endpoint on the queue pair whose write is not reported.
const VICTIM: u32 = 0x41;
/// Limit of the host, in units of 1024 cycles of 4 ns: longer than the host of any test takes when it means well.
const LIMIT: u64 = 4;
const LIMIT_TIME: Duration = Duration::from_nanos(LIMIT * 1024 * 4);
/// Time by which a report is too late.
const LATE: Duration = Duration::from_micros(300);
/// From the doorbell, or from the frame of the peer, to the write; and from a failure of the device to the answer of a register that
/// tells it.
const ROUND: Duration = Duration::from_micros(12);

/// What the host does with writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Silence {
    /// It takes them, and reports them far too late.
    Late,
    /// It takes none.
    Stalled,
}

/// Whose write is the first that is not reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum First {
    /// Payload of a WRITE of the peer.
    Payload,
    /// The CQE of a WRITE of the card.
    Completion,
    /// The answer of a command.
    Answer,
}

impl Silence {
    pub(crate) const ALL: [Silence; 2] = [Silence::Late, Silence::Stalled];

    fn of(self, host: HostOptions) -> HostOptions {
        match self {
            Silence::Late => HostOptions { write_done: Delay::nanoseconds(LATE.as_nanos() as u64), ..host },
            Silence::Stalled => HostOptions { write_request_stall: 1.0, ..host },
        }
    }
}

impl First {
    pub(crate) const ALL: [First; 3] = [First::Payload, First::Completion, First::Answer];
}

/// The host falls silent, and the card has one thing to write.
pub(crate) fn of_no_write(mut rig: Rig, silence: Silence, first: First) -> Result<()> {
    let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
    let mut queue_pair = rig.connect_to_endpoint(queue_pair, VICTIM, IPV4, Pmtu::Bytes1024, 5)?;
    let window = rig.domain.share(64, RemoteRights::WRITE)?;
    limit_host(&mut rig, LIMIT)?;
    ensure!(rig.exchange()?.is_empty(), "messages pass");
    rig.idle(2 * (LIMIT_TIME + ROUND).as_nanos() as usize / 100);
    rig.device.check().context("a host without writes owes no report")?;

    let host = *rig.world().host(0).options();
    rig.world().host_mut(0).set_options(silence.of(host));
    let now = |rig: &Rig| Duration::from_nanos(rig.world().now_ps() / 1000);
    let begin = now(&rig);
    match first {
        First::Payload => {
            let RemoteMemory { address, key, .. } = window.remote();
            rig.endpoint(|endpoint| {
                let work = SendWqe::new(1, Operation::Write { address, key }, Data::Inline(vec![4; 64]));
                endpoint.post_send(VICTIM, work);
            });
        }
        First::Completion => {
            let nothing = RemoteMemory { address: 0, key: PEER_KEY, bytes: 0 };
            let request = SendRequest::write(1, nothing).signalled();
            queue_pair.post_send(request)?;
        }
        First::Answer => {
            // The driver sees an answer that is only not reported.
            let is_answered = rig.domain.allocate(64).is_ok();
            ensure!(is_answered == matches!(silence, Silence::Late), "answered: {is_answered}");
        }
    }
    let told = rig.wait("the failure of the device", |rig| Ok(rig.device.check().err()))?;
    let is_right = matches!(told, Error::DeviceFailed { code: FatalCode::LostWrite, .. });
    ensure!(is_right, "the card says {told:?}");
    let after = now(&rig) - begin;
    // The driver waits for the answer of a command for a time of its own.
    let is_bounded = after <= LIMIT_TIME + ROUND || matches!(first, First::Answer);
    ensure!(after >= LIMIT_TIME && is_bounded, "after {after:?}, limit {LIMIT_TIME:?}");
    // Only the writes are stuck.
    rig.moved()?;

    rig.world().host_mut(0).set_options(host);
    rig.idle(LATE.as_nanos() as usize / 100);
    drop((queue_pair, window));
    rig.finish()
}
