//! The blocks that only the whole card has.
mod event_counters;
mod pool_levels;
