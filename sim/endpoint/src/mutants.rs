//! Faults that the mutation gate plants (`scripts/mutants.sh`). Without the feature `mutants`, which no build has by default,
//! the condition of each is the constant `false`.

/// Whether the fault of this name is switched on.
macro_rules! mutant {
    ($name:literal) => {
        cfg!(feature = "mutants") && std::env::var_os("RNIC_MUTANT").is_some_and(|name| name == $name)
    };
}
