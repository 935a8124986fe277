//! READ slots that all queue pairs share: queue pairs take them until none is left, and the next is refused until some come back.
use crate::rig::{IPV4, READS_MAX as SHARE, Rig, path_to_peer};
use anyhow::{Context, Result, bail, ensure};
use rnic_driver::state::{Init, ReadyToReceive};
use rnic_driver::{AddressHandle, Error, QueuePair, ReceiveOptions, RemoteRights, SendOptions};
use rnic_layout::admin::CommandStatus;
use rnic_layout::path::Pmtu;
use rnic_layout::registers::pool;

/// Brings a queue pair to RTR.
fn receive(
    queue_pair: QueuePair<Init>,
    address: &AddressHandle,
    reads: Option<u8>,
) -> Result<QueuePair<ReadyToReceive>, Error> {
    let options = ReceiveOptions {
        path_mtu: Pmtu::Bytes1024,
        destination_qp: 5,
        receive_psn: 0,
        min_rnr_timer: 12,
        destination_read_atomic: reads,
    };
    queue_pair.ready_to_receive(address, &options).map_err(Error::from)
}

/// Fails unless a transition is refused for lack of slots, by the field that asks for them.
fn is_refused<T>(outcome: Result<T, Error>, field: &str) -> Result<()> {
    match outcome {
        Err(Error::Command(error)) => {
            ensure!(error.status == CommandStatus::NoResources, "{error}");
            ensure!(error.field().is_some_and(|found| found.name == field), "{error}: {:?}", error.field());
            Ok(())
        }
        Err(error) => bail!("the driver hears {error}"),
        Ok(_) => bail!("it got slots"),
    }
}

pub(crate) fn are_shared(rig: &mut Rig) -> Result<()> {
    let limits = *rig.device.limits();
    let all = 1u64 << limits.memory.read_slots_log2;
    ensure!(limits.queues.destination_read_atomic == SHARE && all.is_multiple_of(SHARE.into()));
    let address = rig.domain.create_address_handle(&path_to_peer(IPV4))?;
    let level = |rig: &Rig, name: &str| rig.world().pools(0).map(|levels| levels[pool(name)]);
    let (own, destination) = (level(rig, "read_slots")?, level(rig, "destination_read_slots")?);
    let free = (all - destination) / u64::from(SHARE);
    let mut pairs = Vec::new();
    for place in 0..free {
        let queue_pair = rig.new_queue_pair(RemoteRights::ALL)?;
        let queue_pair = receive(queue_pair, &address, Some(SHARE));
        pairs.push(queue_pair.with_context(|| format!("queue pair {place} of {free}"))?);
    }
    ensure!(level(rig, "destination_read_slots")? == destination + free * u64::from(SHARE));
    is_refused(receive(rig.new_queue_pair(RemoteRights::ALL)?, &address, Some(1)), "destination_read_atomic")
        .context("one more")?;
    // Without READs of its peer it needs none. Those of requesters are others.
    let none = receive(rig.new_queue_pair(RemoteRights::ALL)?, &address, Some(0))?;
    let send = SendOptions { read_atomic: Some(SHARE), ..SendOptions::default() };
    let none = none.ready_to_send(&send).map_err(Error::from)?;
    ensure!(level(rig, "read_slots")? == own + u64::from(SHARE), "the requester has its share");
    // What is given back is taken again: by a reset, and by the end of a queue pair.
    let reset = pairs.pop().context("there are queue pairs")?.reset().map_err(Error::from)?;
    let reset = reset.initialize(RemoteRights::ALL).map_err(Error::from)?;
    let halves: Vec<_> = (0..2).map(|_| rig.new_queue_pair(RemoteRights::ALL)).collect::<Result<_>>()?;
    let halves: Result<Vec<_>, _> =
        halves.into_iter().map(|half| receive(half, &address, Some(SHARE / 2))).collect();
    let halves = halves.context("two halves of what came back")?;
    is_refused(receive(reset, &address, Some(SHARE)), "destination_read_atomic").context("the reset one")?;
    drop((pairs, halves, none));
    rig.device.check()?;
    ensure!(level(rig, "read_slots")? == own && level(rig, "destination_read_slots")? == destination);
    Ok(())
}
