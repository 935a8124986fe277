//! Sends are posted in RTS, not before and not after.
use rnic_driver::{QueuePair, SendRequest, state};

fn before(queue_pair: &mut QueuePair<state::ReadyToReceive>) {
    let _ = queue_pair.post_send(SendRequest::send(0));
}

fn after(queue_pair: &mut QueuePair<state::Error>) {
    let _ = queue_pair.post_send(SendRequest::send(0));
}

fn main() {}
