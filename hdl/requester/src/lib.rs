//! The requester: from a doorbell to packets, and from the peer's responses to completions.
//!
//! ```text
//!  send_posted ─> ready_queue ─> wqe_fetch ─> (host) ─> wqe_pair ─> wqe_parse ─> wqe_check ─> segment ─> issue ─> gather
//!                                  ▲ ▲ └────────── turn ─────────────│─│─│──────────────────> │ │ │        │
//!                                  │ └─────────── resume ────────────┘ │ └──────── wake ────────┘ │        │
//!                                  └────────────── rest ───────────────│────────────────────────┘ │        │
//!                                                                      │                    region table   │
//!                                                                      └─── outstanding (pool) <───────────┘
//!  responses ─> acknowledge ─> read_response ─> (place) ─> acknowledge ─> completion
//! ```
//!
//! The stages, in the order in which a message passes them:
//!
//! 1. [`ready_queue`] holds the queue pairs that may have something to fetch, or the rest of a message to send.
//! 2. [`wqe_fetch`] requests slots of their rings from the host, and [`wqe_pair`] shows each slot with its
//!    successor. [`kept_slots`] has those again that waited for READs. [`wqe_supply`] joins these blocks.
//!    How many slots a turn has, and how many may be on their way, depends on the [`weight`] of their messages.
//! 3. [`wqe_parse`] decides which slots are the next WQE, and gives it PSNs and a slot in the pool,
//!    [`outstanding`].
//! 4. [`wqe_check`] checks its fields and finds its SGEs.
//! 5. [`segment`] makes packets, and requests an access check for each part of their payload. What is left of a long
//!    message after 16 KiB has further turns, for which its queue pair goes back to the ready queue.
//! 6. [`issue`] writes the message into the pool, and hands packets to gather.
//! 7. [`acknowledge`] takes responses, and completes messages in order. What no response reports comes from
//!    issue and from control, through [`local_completion_mux`].
//!    [`ack_timer`] tells it when the peer is silent for too long.
//! 8. [`read_response`] places the data of READs and atomics.
//!
//! Messages of one queue pair keep their order from end to end; no stage waits for the host while it holds a
//! message of another queue pair. [`messages`] has the records that the stages pass, and [`requester`] wires
//! them. [`sweep`] clears their records after a reset, [`setup_fork`] hands them commands,
//! [`in_flight_rounds`] tells control when work in flight has left, and [`event_sums`] gives their events to the
//! counters.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod messages;
pub mod opcode;
pub mod vendor_error;
pub mod weight;
pub mod wqe;

pub mod requester;
pub mod sweep;
pub mod setup_fork;
pub mod ready_queue;
pub mod wqe_fetch;
pub mod kept_slots;
pub mod wqe_pair;
pub mod wqe_supply;
pub mod wqe_parse;
pub mod outstanding;
pub mod wqe_check;
pub mod segment;
pub mod issue;
pub mod local_completion_mux;
pub mod acknowledge;
pub mod ack_timer;
mod response_class;
pub mod read_response;
pub mod in_flight_rounds;
pub mod event_sums;

#[cfg(test)]
mod testing;
