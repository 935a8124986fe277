//! Host memory: the engines that read and write it for all parts of the card.
//!
//! ```text
//!              ┌ host_reader ────────────────────────────────────────────────────────────┐
//!              │            ┌───────────┐   ┌ read_engine ─────────────────────────────┐ │
//!  spans ──────┼─> split ──>│ translate ├──>│ request ─────────────────────────────────┼─┼──> host
//!              │            └───────────┘   │ ┌ chunk_buffer ────────────────────────┐ │ │
//!  slots,      │ ┌────────────┐             │ │ ring, ring (tags, chunks)            │ │ │
//!  payload, <──┼─┤ read_demux │<────────────┼─┤ answers in order <── arrivals <──────┼─┼─┼─── host
//!  words       │ └────────────┘             │ └──────────────────────────────────────┘ │ │
//!              │                            └──────────────────────────────────────────┘ │
//!              └─────────────────────────────────────────────────────────────────────────┘
//!              ┌ host_writer ──────────────────────────┐
//!              │             ┌───────────┐             │
//!  writes ─────┼─> arbiter ─>│ translate ├─────────────┼──> host
//!  counts <────┼─── owners <─┴───────────┴─────────────┼─── host (done)
//!              └───────────────────────────────────────┘
//! ```
//!
//! In the order in which a read, and then a write, meets them:
//!
//! | Block | What it does |
//! |---|---|
//! | [`HostReader`] | reads spans for five clients |
//! | [`translate`] | makes device addresses of addresses in pages |
//! | [`read_engine`] | issues reads with tags, and gives their answers in order |
//! | [`chunk_buffer`] | reserves tags and room for answers, and keeps the answers |
//! | [`ring`] | hands out positions of a ring in order |
//! | [`arrivals`] | finds the chunk of each word that the host answers |
//! | [`quarantine`] | keeps tags from use whose answer may still come |
//! | [`read_demux`] | gives answers to clients as slots, payload or words |
//! | [`HostWriter`] | writes for four clients in one order, and counts what is done |
//! | [`report_watch`] | notices that the host reports no write |
//! | [`BusMaster`] | lets requests to the host begin only while the card may make them |
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod host_reader;
pub mod translate;
pub mod read_engine;
pub mod chunk_buffer;
pub mod ring;
pub mod arrivals;
pub mod quarantine;
pub mod read_demux;
pub mod host_writer;
pub mod report_watch;
pub mod bus_master;

#[cfg(any(test, feature = "bench"))]
pub mod testing;

pub use bus_master::BusMaster;
pub use host_reader::HostReader;
pub use host_writer::HostWriter;
