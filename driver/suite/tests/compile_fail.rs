//! What the types of the driver do not allow.

#[test]
fn what_a_state_or_an_owner_does_not_allow_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
