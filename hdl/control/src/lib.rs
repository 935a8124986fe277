//! The slow path: doorbells, the admin queue, and the life of queue pairs.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]
