//! A back end cannot write memory in words: it might be on loan to the application.
use rnic_driver::Memory;
use rnic_driver::ring::Words;
use std::sync::atomic::Ordering;

fn write(memory: &Memory) {
    Words::store(memory, 0, 1, Ordering::Relaxed);
}

fn main() {}
