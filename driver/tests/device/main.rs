//! Tests of the driver over a fake card.

mod fake;
mod rig;

mod back_end;
mod completions;
mod events;
mod lifecycle;
mod messages;
mod posting;
mod shared_receives;
mod start;
mod unconfirmed;
