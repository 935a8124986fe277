//! A queue pair over a null card, connected to itself, with memory to post.
use super::null_card::NullCard;
use rnic_driver::{
    CompletionQueue, ConnectOptions, Device, Function, Options, QueuePair, QueuePairOptions, Region,
    RemoteMemory, RemoteRights, state::ReadyToSend,
};
use std::sync::Arc;

pub(crate) struct Ground {
    pub(crate) card: Arc<NullCard>,
    pub(crate) queue: CompletionQueue,
    pub(crate) queue_pair: QueuePair<ReadyToSend>,
    pub(crate) remote: RemoteMemory,
    /// Memory that is not in flight.
    pub(crate) regions: Vec<Region>,
}

impl Ground {
    /// Makes a queue pair, and so many regions of 64 bytes.
    pub(crate) fn new(options: &QueuePairOptions, regions: u64) -> Self {
        let card = NullCard::new();
        let of_device = Options { seed: Some(1), ..Options::new([2, 0, 0, 0, 0, 1]) };
        let device =
            Device::open(Arc::clone(&card) as Arc<dyn Function>, of_device).expect("the card starts");
        let domain = device.create_protection_domain().expect("a domain is free");
        let queue =
            device.create_completion_queue(&device.events(), &Default::default()).expect("a queue is free");
        let queue_pair = domain.create_queue_pair(&queue, &queue, options).expect("a queue pair is free");
        let queue_pair = queue_pair.initialize(RemoteRights::ALL).expect("the card accepts it");
        let peer = queue_pair.info(0).expect("there is an address");
        let queue_pair = queue_pair.connect(&peer, &ConnectOptions::default()).expect("the card accepts it");
        let remote = domain.share(4096, RemoteRights::ALL).expect("memory is free").remote();
        let regions = (0..regions).map(|_| domain.allocate(64).expect("memory is free")).collect();
        Ground { card, queue, queue_pair, remote, regions }
    }
}
