//! The simulated machine: verilated cards, what is around them, and what they are held against.

pub mod bench;
pub mod captures;
pub mod chance;
pub mod demo;
pub mod differential;
pub mod endpoint;
pub mod frames;
pub mod function;
pub mod host;
pub mod latency;
pub mod monitor;
pub mod operations;
pub mod packet_path;
pub mod report;
pub mod scenario;
pub mod token;
pub mod wire;
pub mod words;
pub mod world;
