//! Objects of every kind: their sizes, their limits, and that they end.

use crate::cards::{Card, Cards};
use anyhow::{Result, bail, ensure};
use rnic_driver::{
    CompletionQueueOptions, Error, EventQueueOptions, FunctionError, Options, PageSize, Path,
    QueuePairOptions, ReceiveOptions, RemoteRights, SendOptions, ServerError, SharedReceiveQueueOptions,
};
use rnic_layout::limits::RING_LOG2_MIN;
use rnic_layout::path::{Gid, Pmtu};

/// Most objects of one kind that a check makes.
const OBJECTS_MAX: usize = 64;

/// Largest ring that a check makes, log2: the system may limit the memory of a process that cards reach.
const LOG2_MAX: u32 = 14;

/// Makes an object of each size from the smallest on, and must fail on both sides of the sizes that the card has.
fn sizes<T>(kind: &str, largest: u8, make: impl Fn(u32) -> Result<T, Error>) -> Result<()> {
    let (smallest, largest) = (RING_LOG2_MIN, u32::from(largest));
    for log2 in smallest..=largest.min(LOG2_MAX) {
        make(log2)?;
    }
    for log2 in [smallest - 1, largest + 1] {
        match make(log2) {
            Ok(_) => {
                bail!("a {kind} of 2^{log2} entries was made; the limits are 2^{smallest} and 2^{largest}")
            }
            Err(error) => {
                ensure!(matches!(error, Error::Option { .. }), "{kind} of 2^{log2} entries: {error}")
            }
        }
    }
    Ok(())
}

/// Makes as many objects as the card has, and one more, twice: the numbers of those that have ended are used again.
fn exhaust<T>(kind: &str, count: usize, make: impl Fn() -> Result<T, Error>) -> Result<()> {
    for _ in 0..2 {
        let made = (0..count.min(OBJECTS_MAX)).map(|_| make()).collect::<Result<Vec<T>, Error>>()?;
        if made.len() == count {
            match make() {
                Ok(_) => bail!("the card has {count} {kind}, and gave one more"),
                Err(error) => {
                    ensure!(matches!(error, Error::Exhausted { .. }), "one more of the {kind}: {error}")
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn completion_queues(cards: &Cards) -> Result<()> {
    let Card { device, .. } = &cards.open(0)?;
    let events = device.events();
    let limits = device.limits();
    sizes("completion queue", limits.queues.cqes_log2, |entries_log2| {
        let options = CompletionQueueOptions { entries_log2, ..CompletionQueueOptions::default() };
        device.create_completion_queue(&events, &options)
    })?;
    let count = 1 << limits.tables.completion_queues_log2;
    exhaust("completion queues", count, || device.create_completion_queue(&events, &Default::default()))
}

pub(crate) fn event_queues(cards: &Cards) -> Result<()> {
    let Card { device, .. } = &cards.open(0)?;
    let limits = device.limits();
    sizes("event queue", limits.queues.eqes_log2, |entries_log2| {
        device.create_event_queue(&EventQueueOptions { entries_log2, ..EventQueueOptions::default() })
    })?;
    let vectors = u32::from(limits.geometry.interrupt_vectors);
    for vector in [0, vectors - 1] {
        device.create_event_queue(&EventQueueOptions { vector, ..EventQueueOptions::default() })?;
    }
    let beyond = EventQueueOptions { vector: vectors, ..EventQueueOptions::default() };
    ensure!(device.create_event_queue(&beyond).is_err(), "there is no vector {vectors}");
    // Event queue 0 belongs to the device.
    let count = (1 << limits.tables.event_queues_log2) - 1;
    exhaust("event queues", count, || device.create_event_queue(&EventQueueOptions::default()))
}

pub(crate) fn shared_receive_queues(cards: &Cards) -> Result<()> {
    let Card { device, .. } = &cards.open(0)?;
    let domain = device.create_protection_domain()?;
    sizes("shared receive queue", device.limits().queues.receive_wqes_log2, |entries_log2| {
        let options = SharedReceiveQueueOptions { entries_log2, ..SharedReceiveQueueOptions::default() };
        domain.create_shared_receive_queue(&options)
    })?;
    let queue = domain.create_shared_receive_queue(&SharedReceiveQueueOptions::default())?;
    queue.set_limit(7)?;
    queue.set_limit(0)?;
    let count = 1 << device.limits().tables.shared_receive_queues_log2;
    drop(queue);
    exhaust("shared receive queues", count, || domain.create_shared_receive_queue(&Default::default()))
}

pub(crate) fn queue_pairs(cards: &Cards) -> Result<()> {
    let Card { device, .. } = &cards.open(0)?;
    let domain = device.create_protection_domain()?;
    // Room for the longest queues.
    let entries_log2 = u32::from(device.limits().queues.cqes_log2).min(LOG2_MAX + 1);
    let options = CompletionQueueOptions { entries_log2, ..CompletionQueueOptions::default() };
    let completions = device.create_completion_queue(&device.events(), &options)?;
    let queues = &device.limits().queues;
    sizes("send queue", queues.send_slots_log2, |send_slots_log2| {
        let options = QueuePairOptions { send_slots_log2, ..QueuePairOptions::default() };
        domain.create_queue_pair(&completions, &completions, &options)
    })?;
    sizes("receive queue", queues.receive_wqes_log2, |receive_wqes_log2| {
        let options = QueuePairOptions { receive_wqes_log2, ..QueuePairOptions::default() };
        domain.create_queue_pair(&completions, &completions, &options)
    })?;

    let queue_pair = domain.create_queue_pair(&completions, &completions, &QueuePairOptions::default())?;
    let info = queue_pair.info(0)?;
    let address = domain.create_address_handle(&Path::new(info.gid, info.mac))?;
    let receive = ReceiveOptions {
        path_mtu: Pmtu::Bytes1024,
        destination_qp: info.qp_number,
        receive_psn: info.first_psn,
        min_rnr_timer: 12,
        destination_read_atomic: None,
    };
    let queue_pair = queue_pair.initialize(RemoteRights::ALL)?.ready_to_receive(&address, &receive)?;
    let queue_pair = queue_pair.ready_to_send(&SendOptions::default())?.drain(false)?;
    ensure!(!queue_pair.is_draining()?, "nothing is in flight");
    let queue_pair = queue_pair.resume()?;
    ensure!(!queue_pair.has_failed()?, "the queue pair has failed");
    let queue_pair = queue_pair.fail()?;
    ensure!(queue_pair.has_failed()?, "the queue pair has not failed");
    // Its next life.
    queue_pair.reset()?.initialize(RemoteRights::NONE)?;
    Ok(())
}

pub(crate) fn regions(cards: &Cards) -> Result<()> {
    let Card { device, .. } = &cards.open(0)?;
    let domain = device.create_protection_domain()?;
    let mut keys = Vec::new();
    let mut lasting = Vec::new();
    for bytes in [1, 4095, 4096, 4097, 100_000, 5 << 20] {
        let mut region = domain.allocate(bytes)?;
        ensure!(region.bytes().iter().all(|&byte| byte == 0), "memory of {bytes} bytes is not zeroed");
        region.bytes_mut().fill(0x5a);
        keys.push(region.key());
        let (front, back) = region.split_at(bytes / 2).map_err(|_| anyhow::anyhow!("split"))?;
        ensure!(front.len() + back.len() == bytes);
        let shared = domain.share(bytes, RemoteRights::ALL)?;
        shared.write(bytes - 1, &[7])?;
        ensure!(shared.remote().bytes == bytes as u64 && shared.write(bytes, &[7]).is_err());
        keys.push(shared.remote().key);
        lasting.push((front, back, shared));
    }
    for rights in [RemoteRights::NONE, RemoteRights::WRITE, RemoteRights { read: true, ..RemoteRights::NONE }]
    {
        keys.push(domain.share(64, rights)?.remote().key);
    }
    keys.push(domain.share_invalidatable(64, RemoteRights::ALL)?.remote().key);
    ensure!(matches!(domain.allocate(0), Err(Error::Option { .. })), "a region of no bytes");
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    ensure!(keys.len() == count, "two regions had one key");
    Ok(())
}

pub(crate) fn huge_pages(cards: &Cards) -> Result<()> {
    let Card { device, .. } = &cards.open(0)?;
    let domain = device.create_protection_domain()?;
    for page_size in [PageSize::Huge2MiB, PageSize::Huge1GiB] {
        match domain.allocate_in(page_size.bytes() - 1, page_size) {
            Ok(mut region) => {
                let last = region.len() - 1;
                region.bytes_mut()[last] = 7;
                ensure!(region.bytes()[..2] == [0, 0] && region.bytes()[last] == 7, "memory is zeroed");
            }
            // The machine has none free, or the card is in a process that takes none.
            Err(Error::Function(FunctionError::NoHugePages { .. })) => {}
            Err(Error::Function(FunctionError::Server { error: ServerError::HugePages, .. })) => {}
            Err(error) => bail!("{page_size:?}: {error}"),
        }
    }
    Ok(())
}

pub(crate) fn address_handles(cards: &Cards) -> Result<()> {
    let Card { device, .. } = &cards.open(0)?;
    let domain = device.create_protection_domain()?;
    let Options { mac, .. } = *device.options();
    let mut handles = Vec::new();
    for (source_index, gid) in [(0, Gid::from_ipv4([192, 168, 1, 1].into())), (1, Gid::from_mac(mac))] {
        for vlan in [None, Some(7)] {
            let path = Path { vlan, source_index, ..Path::new(gid, mac) };
            handles.push(domain.create_address_handle(&path)?);
        }
        let other = Path { source_index: 1 - source_index, ..Path::new(gid, mac) };
        ensure!(domain.create_address_handle(&other).is_err(), "source and peer are of two versions of IP");
    }
    let numbers: Vec<u32> = handles.iter().map(|handle| handle.number()).collect();
    ensure!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{numbers:?}");
    let beyond = Path { source_index: 2, ..Path::new(Gid::from_mac(mac), mac) };
    ensure!(domain.create_address_handle(&beyond).is_err(), "there are two source addresses");
    Ok(())
}
