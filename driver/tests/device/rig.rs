//! Two queue pairs of the fake card that are connected to each other.

use crate::fake::FakeFunction;
use rnic_driver::state::ReadyToSend;
use rnic_driver::{
    Completion, CompletionQueue, CompletionQueueOptions, ConnectOptions, Device, Function, Options,
    ProtectionDomain, QueuePair, QueuePairOptions, Region, RemoteRights,
};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const LONG: Duration = Duration::from_micros(1000);
pub(crate) const SHORT: Duration = Duration::from_micros(20);

/// A card with two connected queue pairs, each with a completion queue of its own.
pub(crate) struct Pair {
    pub(crate) function: Arc<FakeFunction>,
    pub(crate) device: Device,
    pub(crate) domain: ProtectionDomain,
    pub(crate) queues: [CompletionQueue; 2],
    pub(crate) left: QueuePair<ReadyToSend>,
    pub(crate) right: QueuePair<ReadyToSend>,
}

pub(crate) fn card() -> (Arc<FakeFunction>, Device) {
    let function = FakeFunction::new(1);
    let options = Options { seed: Some(7), timeout: Duration::from_micros(100), ..Options::new(MAC) };
    let device = Device::open(Arc::clone(&function) as Arc<dyn Function>, options).unwrap();
    (function, device)
}

pub(crate) fn pair() -> Pair {
    pair_with(RemoteRights::ALL, &QueuePairOptions::default(), &CompletionQueueOptions::default())
}

pub(crate) fn pair_with(
    rights: RemoteRights,
    options: &QueuePairOptions,
    completion_options: &CompletionQueueOptions,
) -> Pair {
    let (function, device) = card();
    let domain = device.create_protection_domain().unwrap();
    let queue = || device.create_completion_queue(&device.events(), completion_options).unwrap();
    let queues = [queue(), queue()];
    let [left, right] = [&queues[0], &queues[1]]
        .map(|queue| domain.create_queue_pair(queue, queue, options).unwrap().initialize(rights).unwrap());
    let infos = [left.info(0).unwrap(), right.info(0).unwrap()];
    let left = left.connect(&infos[1], &ConnectOptions::default()).unwrap();
    let right = right.connect(&infos[0], &ConnectOptions::default()).unwrap();
    Pair { function, device, domain, queues, left, right }
}

impl Pair {
    /// Allocates a region with these bytes.
    pub(crate) fn filled(&self, bytes: &[u8]) -> Region {
        let mut region = self.domain.allocate(bytes.len()).unwrap();
        region.bytes_mut().copy_from_slice(bytes);
        region
    }

    pub(crate) fn room(&self, bytes: usize) -> Region {
        self.domain.allocate(bytes).unwrap()
    }

    /// Waits for the next completion of one side.
    pub(crate) fn next(&self, side: usize) -> Completion {
        self.queues[side].spin(LONG).unwrap().expect("a completion comes")
    }

    pub(crate) fn idle(&self, steps: u32) {
        for _ in 0..steps {
            self.function.idle();
        }
    }
}

pub(crate) fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index as u8).wrapping_mul(7).wrapping_add(seed)).collect()
}
