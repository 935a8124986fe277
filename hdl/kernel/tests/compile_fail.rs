//! Mistakes that the compiler reports, each at its place.

#[test]
fn unsupported_syntax_is_a_compile_error_at_its_place() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
