//! The connection manager: `librdmacm.so.1` with the symbols, versions and structures of rdma-core 44. Programs that the distribution
//! has linked against librdmacm connect over cards of rnic without a kernel driver.
//!
//! ```text
//!   program ── rdma_connect, rdma_accept …       connect, resolve, create_ep     what the program decides
//!           ── rdma_get_cm_event                 channel, event                  what has happened
//!                  │                                    ▲
//!                  ▼                                    │
//!              id, endpoint ◄──────────────────────── agent                      threads that wait for peers
//!                  │                                    │
//!                  ▼                                    ▼
//!   queue_pair, cards: the verbs library          message, transport ── side_channel: sockets
//! ```
//!
//! # Addresses
//!
//! Programs name IP addresses. A card has one in 10.0.0.0/8, made from its name, that no interface of a host has.
//!
//! | The program | means |
//! |---|---|
//! | binds to the address of a card of `RNIC_DEVICE` | that card |
//! | binds to another address | the card that this process uses: one that is open, or else the first that can be opened; and the port of the host |
//! | binds to a wildcard address | the same once a peer asks, or the card whose address the peer has named |
//! | connects to an address of a host | the connection manager that listens there, over TCP; the card that it uses is in its answer |
//! | connects to the address of a card | the process of this host whose card that is |
//!
//! The module `side_channel` says how a peer is reached.
//!
//! # Rules
//!
//! 1. What the card has not is refused with the errno that the manual documents.
//! 2. A refusal writes one line to standard error, which says what to do. Events write nothing.
//! 3. Nothing waits for a peer without a bound: a peer that is refused, silent, or dead is an event.
//! 4. Queue pairs are modified in the threads of the program: in `rdma_accept`, and in `rdma_get_cm_event` of the client.
//! 5. A pointer that the program passes is what the manual demands, as in the verbs library.

mod abi;
mod outcome;
mod addresses;

mod message;
mod transport;
mod side_channel;

mod verbs;
mod cards;

mod channel;
mod endpoint;
mod agent;
mod event;
mod id;
mod resolve;
mod connect;
mod queue_pair;
mod create_ep;
mod info;

mod absent;
mod exports;
