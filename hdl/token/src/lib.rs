//! What the parts of the card say to each other: tokens, the requests of one role to another, and the sizes of tables.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod packet;

pub use packet::{EXTENDED_BITS, PacketToken};
