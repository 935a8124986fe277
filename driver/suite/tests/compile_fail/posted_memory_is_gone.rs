//! Memory that was posted is the card's until it completes.
use rnic_driver::{QueuePair, Region, SendRequest, state};

fn post(queue_pair: &mut QueuePair<state::ReadyToSend>, region: Region) {
    let _ = queue_pair.post_send(SendRequest::send(0).sge(region));
    let _ = region.bytes();
}

fn lend(queue_pair: &mut QueuePair<state::ReadyToSend>, region: Region) {
    let bytes = region.bytes();
    let _ = queue_pair.post_send(SendRequest::send(0).sge(region));
    let _ = bytes[0];
}

fn main() {}
