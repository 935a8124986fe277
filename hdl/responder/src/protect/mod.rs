//! Whether somebody may touch memory.
pub mod region_table;

pub use region_table::RegionTable;
