//! Receives are posted from INIT on.
use rnic_driver::{QueuePair, ReceiveRequest, state};

fn before(queue_pair: &mut QueuePair<state::Reset>) {
    let _ = queue_pair.post_receive(ReceiveRequest::new(0));
}

fn main() {}
