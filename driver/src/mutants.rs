//! Faults that the mutation gate plants (`scripts/mutants.sh`). Without the feature `mutants`, which no build has by default,
//! nothing of them is compiled.

/// Whether the fault of this name is switched on.
#[cfg(feature = "mutants")]
macro_rules! mutant {
    ($name:literal) => {
        std::env::var_os("RNIC_MUTANT").is_some_and(|name| name == $name)
    };
}

/// Whether the fault of this name is switched on: never.
#[cfg(not(feature = "mutants"))]
macro_rules! mutant {
    ($name:literal) => {
        false
    };
}
