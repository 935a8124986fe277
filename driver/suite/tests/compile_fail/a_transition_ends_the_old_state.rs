//! A queue pair is in one state.
use rnic_driver::{QueuePair, RemoteRights, state};

fn twice(queue_pair: QueuePair<state::Reset>) {
    let _ = queue_pair.initialize(RemoteRights::NONE);
    let _ = queue_pair.initialize(RemoteRights::NONE);
}

fn skip(queue_pair: QueuePair<state::Reset>) {
    let _ = queue_pair.ready_to_send(&Default::default());
}

fn main() {}
