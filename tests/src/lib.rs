//! Proofs and synthesis of generated blocks, for the tests of this crate and for `synth_report`.

pub mod proof;
pub mod synthesis;
