//! The requester: from a doorbell to a packet, and from an acknowledgement to a completion.
//!
//! ```text
//!  send_posted ─> schedule ─> fetch ─> (host) ─> collect ─> segment ─> authorize ─> cut ─> issue ─> gather
//!                               ▲                            │ ▲ ▲                  │ │      │
//!                               └──────────── turn ──────────┘ │ └───── wake ───────┘ │      │
//!                                                              │                region table │
//!                                                              └── outstanding (pool) <──────┘
//!  responses ─> acknowledge ─> deposit ─> (place) ─> acknowledge ─> completion
//! ```
//!
//! Tokens of one queue pair keep their order from end to end; no stage waits for the host while it holds a token of
//! another queue pair.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod acknowledge;
pub mod constants;
pub mod in_flight_rounds;
pub mod issue;
pub mod messages;
pub mod outstanding;
pub mod read_response;
pub mod ready_queue;
pub mod requester;
mod response_class;
pub mod segment;
pub mod setup_fork;
pub mod sweep;
pub mod wqe;
pub mod wqe_check;
pub mod wqe_fetch;
pub mod wqe_pair;
pub mod wqe_parse;

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use rnic_blocks::bench::Bench;

    #[test]
    fn a_sweep_shows_every_index_once() {
        let mut bench = Bench::clocked(crate::sweep::Sweep::default(), |b| &mut b.clock).in_lock_step();
        for cycle in 0..1100u64 {
            bench.settle();
            assert_eq!(bench.block.is_sweeping.val(), cycle < 1024);
            assert!(cycle >= 1024 || bench.block.index.val() == cycle);
            bench.tick();
        }
    }
}
