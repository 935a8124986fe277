//! The requester: from a doorbell to a packet, and from an acknowledgement to a completion.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]
