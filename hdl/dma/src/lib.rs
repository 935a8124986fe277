//! Everything between host memory and the packet path that knows the datapath's width.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]
