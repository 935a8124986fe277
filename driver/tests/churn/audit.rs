//! What a card and its host have in use, and what must be in use.

use anyhow::{Context, Result, ensure};
use rnic_driver::{
    CompletionQueueOptions, Device, EventQueueOptions, ObjectCounts, QueuePairOptions,
    SharedReceiveQueueOptions,
};
use rnic_machine::function::{SharedWorld, lock};

/// Objects of a card, as its driver counts them, and mappings of the simulated IOMMU of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InUse {
    objects: ObjectCounts,
    mappings: usize,
}

impl InUse {
    pub(crate) fn of(device: &Device, world: &SharedWorld, card: usize) -> Self {
        let mappings = lock(world).host(card).memory().mappings().len();
        Self { objects: device.objects(), mappings }
    }

    /// Each kind with its count.
    fn kinds(&self) -> [(&'static str, usize); 9] {
        let ObjectCounts {
            protection_domains,
            queue_pairs,
            completion_queues,
            event_queues,
            regions,
            page_table_entries,
            address_handles,
            shared_receive_queues,
        } = self.objects;
        let kinds = [
            ("protection domains", protection_domains),
            ("queue pairs", queue_pairs),
            ("completion queues", completion_queues),
            ("event queues", event_queues),
            ("regions", regions),
            ("page table entries", page_table_entries),
            ("address handles", address_handles),
            ("shared receive queues", shared_receive_queues),
        ];
        let mut all = [("mappings", self.mappings); 9];
        for (place, (kind, count)) in all.iter_mut().zip(kinds) {
            *place = (kind, count as usize);
        }
        all
    }

    /// Fails with each kind of which more or fewer are in use than before.
    pub(crate) fn same_as(&self, before: &Self) -> Result<()> {
        self.between(before, before)
    }

    /// Fails with each kind of which fewer than the least or more than the most are in use.
    pub(crate) fn between(&self, least: &Self, most: &Self) -> Result<()> {
        let kinds = self.kinds().into_iter().zip(least.kinds()).zip(most.kinds());
        let wrong = kinds.filter(|(((_, now), (_, least)), (_, most))| now < least || now > most);
        let text = |(((kind, now), (_, least)), (_, most))| match least == most {
            true => format!("{now} {kind} instead of {least}"),
            false => format!("{now} {kind} instead of {least} to {most}"),
        };
        let wrong: Vec<String> = wrong.map(text).collect();
        ensure!(wrong.is_empty(), "in use are {}", wrong.join(", "));
        Ok(())
    }
}

/// Highest mapped device address of a host, and the bytes that are mapped with a guard page for each mapping.
pub(crate) fn addresses(world: &SharedWorld, card: usize) -> (u64, u64) {
    let world = lock(world);
    let mappings = world.host(card).memory().mappings();
    mappings.fold((0, 0), |(end, sum), (address, bytes)| (end.max(address + bytes), sum + bytes + 4096))
}

/// Makes as many objects of each kind as the tables of the card have room for besides those in use, at most `most` of a kind. The
/// card refuses an object whose place it has not freed.
pub(crate) fn fill(device: &Device, most: u32) -> Result<()> {
    let (tables, used) = (device.limits().tables, device.objects());
    let free = |log2: u8, used: u32| 0..((1 << log2) - used).min(most);
    let domain = device.create_protection_domain()?;
    let queue = || device.create_completion_queue(&device.events(), &CompletionQueueOptions::default());
    let places = free(tables.completion_queues_log2, used.completion_queues);
    let queues: Vec<_> = places.map(|_| queue()).collect::<Result<_, _>>().context("completion queues")?;
    let completions = queues.first().context("a completion queue is free")?;
    // Event queue 0 belongs to the device.
    let places = free(tables.event_queues_log2, used.event_queues + 1);
    let event_queue = |_| device.create_event_queue(&EventQueueOptions::default());
    let event_queues: Vec<_> = places.map(event_queue).collect::<Result<_, _>>().context("event queues")?;
    let places = free(tables.shared_receive_queues_log2, used.shared_receive_queues);
    let shared = |_| domain.create_shared_receive_queue(&SharedReceiveQueueOptions::default());
    let shared: Vec<_> = places.map(shared).collect::<Result<_, _>>().context("shared receive queues")?;
    let places = free(tables.queue_pairs_log2, used.queue_pairs);
    let queue_pair = |_| domain.create_queue_pair(completions, completions, &QueuePairOptions::default());
    let queue_pairs: Vec<_> = places.map(queue_pair).collect::<Result<_, _>>().context("queue pairs")?;
    let places = free(tables.regions_log2, used.regions);
    let regions: Vec<_> = places.map(|_| domain.allocate(1)).collect::<Result<_, _>>().context("regions")?;
    let counts = [queues.len(), event_queues.len(), shared.len(), queue_pairs.len(), regions.len()];
    println!(
        "  completion queues, event queues, SRQs, queue pairs, regions besides those in use: {counts:?}"
    );
    Ok(())
}
