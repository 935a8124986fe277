//! The verbs library: `libibverbs.so.1` with the symbols, versions and structures of rdma-core 44, over the driver of the card.
//! Programs that the distribution has linked against libibverbs run over a card without a kernel driver.
//!
//! ```text
//!   program ── ibv_open_device, ibv_create_qp …    versioned symbols (`symbols.txt`)
//!           ── ibv_post_send, ibv_poll_cq …        pointers in the context (`abi`), called by inline functions of verbs.h
//!                  │
//!                  ▼
//!   context ── protection_domain, region, completion_queue, shared_receive_queue, queue_pair, post        one file for each object
//!           ── events: a thread that turns interrupts into readable file descriptors
//!                  │
//!                  ▼
//!   rnic-driver (`raw`) ── vfu: or pci: card
//! ```
//!
//! One environment variable, `RNIC_DEVICE`, names the cards, separated by commas: `vfu:/run/card0.sock,vfu:/run/card1.sock`.
//!
//! # Rules
//!
//! 1. What the card has not is refused with the errno that the manual documents, and its capability is zero. Nothing is emulated.
//! 2. A refusal of a control operation writes one line to standard error, which says what to do. The data path writes nothing.
//! 3. Posting and polling allocate nothing. They take the lock of the queue, which only threads that share the queue wait for.
//! 4. An object of the ABI is the first field of an object of this library, so that a pointer to it is a pointer to both.
//! 5. A pointer that the program passes is what the manual demands: of an object that exists, or of memory of the right size. That is
//!    the contract of every function here, as it is in C.
//!
//! # Addresses
//!
//! A card has an IPv4 address in 10.0.0.0/8, made from its name, at index 0 of the GID table, and the link-local IPv6 address of its
//! MAC address at index 1. The MAC address holds the IPv4 address, so that the MAC address of a peer follows from its GID: no
//! neighbour is asked, and peers are cards that this library has opened.

mod abi;
mod outcome;

mod addresses;
mod device_list;
mod events;
mod context;
mod query;

mod protection_domain;
mod region;
mod channel;
mod completion_queue;
mod polling;
mod shared_receive_queue;
mod queue_pair;
mod attributes;
mod post;
mod work_session;
mod turn;

mod absent;
mod private;
mod names;

mod exports;
