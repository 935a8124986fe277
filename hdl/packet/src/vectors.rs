//! The frames of protocol 1.8, with ICRCs that three independent programs and one network card agree on.
use super::samples::bytes_of;
use serde::Deserialize;

#[derive(Deserialize)]
struct Vector {
    frame: String,
}

/// All of them, without FCS; the last four bytes are the ICRC.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let text = include_str!("../../../tests/vectors/vectors.json");
    let vectors: Vec<Vector> = serde_json::from_str(text).expect("the vectors are JSON");
    assert_eq!(vectors.len(), 23);
    vectors.iter().map(|vector| bytes_of(&vector.frame)).collect()
}
