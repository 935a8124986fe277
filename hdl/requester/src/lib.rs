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
mod answer;
pub mod authorize;
pub mod collect;
pub mod cut;
pub mod deposit;
pub mod fetch;
pub mod fork;
pub mod issue;
pub mod numbers;
pub mod outstanding;
pub mod requester;
pub mod rounds;
pub mod schedule;
pub mod segment;
pub mod sweep;
pub mod tokens;
pub mod work;

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
