//! Completion queues, event queues and interrupts, in that order (DESIGN 3 decision 11).
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]
