//! The list of symbols is true: the library of the distribution has no public symbol that it lacks, and this library has those that
//! it says are here.

use rnic_stand_in::Library;

const LIBRARY: Library =
    Library { name: "libibverbs.so", versions: "IBVERBS", list: include_str!("../symbols.txt") };

#[test]
fn every_symbol_of_the_distribution_is_listed() {
    LIBRARY.check_list(150);
}

#[test]
fn this_library_has_the_symbols_that_are_listed_without_a_reason() {
    LIBRARY.check_symbols();
}

#[test]
fn what_is_not_here_has_a_reason() {
    LIBRARY.check_reasons();
}

#[test]
fn the_library_has_the_name_that_programs_ask_for() {
    LIBRARY.check_name();
}
