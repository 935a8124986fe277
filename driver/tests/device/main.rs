//! The driver over a fake card: start, commands, events, queues.

mod fake;
mod start;
mod verbs;
