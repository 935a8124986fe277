//! Cards of a world as PCI functions for other processes, behind vfio-user.
//!
//! ```text
//!   process ── driver ══ Unix socket ══ connection ── session ── function ── registers ─┐
//!      │                    messages    whole ones     rules      a PCI function         ├── card
//!      └── memfd ────────────────────── memory ───────────────── DMA, through the host ──┘
//!      └── eventfd <─────────────────────────────────────────── MSI-X
//! ```
//!
//! [`server::Server`] has one thread for the sockets and the world. Nothing in it waits for a client: sockets do not block, and
//! each has at most one request and its reply in the server. So a client that stalls, lies or dies costs its own card, and no
//! other. A client that leaves is cleaned up: the card is reset as by a function-level reset, its mappings end, and the next
//! client finds it as after power-up, except for counters, which no reset clears.
//!
//! The server of the crate `vfio_user` serves one client a call, and blocks in each of its reads; its client is the judge of
//! this one in the tests.
//!
//! # Time
//!
//! The clock runs while something is in flight, and for a while afterwards, in which the card does what needs no host and no
//! wire. Then it runs a fiftieth of the time, for the timers of the card. Without a client it stands.
pub mod background;
pub mod connection;
pub mod function;
pub mod memory;
pub mod message;
pub mod server;
pub mod session;
