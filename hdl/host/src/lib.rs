//! The host's side of the card: registers, doorbells, and the engines that read and write host memory.
#![allow(
    missing_docs,
    reason = "rust-hdl's derives write undocumented methods; the tidy test checks our own items"
)]

pub mod arrivals;
pub mod chunk_buffer;
pub mod host_reader;
pub mod host_writer;
pub mod read_demux;
pub mod read_engine;
pub mod ring;
pub mod translate;

#[cfg(any(test, feature = "bench"))]
pub mod testing;

pub use host_reader::HostReader;
pub use host_writer::HostWriter;
