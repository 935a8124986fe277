//! Frames of a peer at the rate of a wire.
use crate::rig::Rig;
use anyhow::Result;

/// Rate that every card takes, in bits a nanosecond.
const SLOWEST: u64 = 10;
/// Frames that are sent together.
const TOGETHER: usize = 16;

/// Rate of the wire of a card, in bits a nanosecond.
fn wire_rate(width_bits: u32) -> u64 {
    if width_bits == 512 { 100 } else { SLOWEST }
}

/// Time that frames take on a wire, with preamble, FCS and gap.
fn wire_ns(frames: &[Vec<u8>], bits_per_ns: u64) -> u64 {
    let bytes: usize = frames.iter().map(|frame| frame.len().max(60) + 24).sum();
    bytes as u64 * 8 / bits_per_ns
}

/// Sends frames as fast as the wire of a card brings them, until the last one is sent.
pub(crate) fn send_fast(rig: &Rig, frames: &[Vec<u8>], width_bits: u32) -> Result<()> {
    rig.send(frames);
    rig.step_ns(wire_ns(frames, wire_rate(width_bits)))
}

/// Sends frames no faster than every card takes them.
pub(crate) fn send_paced(rig: &Rig, frames: &[Vec<u8>]) -> Result<()> {
    for together in frames.chunks(TOGETHER) {
        rig.send(together);
        rig.step_ns(wire_ns(together, SLOWEST) + 1)?;
    }
    Ok(())
}
