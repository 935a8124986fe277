//! What crossed the wire between two Linux hosts, with the card in the place of one of them.
//!
//! Once in the place of the host that was asked: it is sent the captured requests, one after the other, and answers as Linux
//! did. Once in the place of the host that asked: its driver posts what the captured requests were made of, its packets are
//! those that were captured, and it is sent the captured answers. Queue pair numbers, keys and addresses of the card's side,
//! and its PSNs, are its own, so captured frames are changed in these fields, and their ICRC with them.
//!
//! One capture needs what the card does not do yet, and is missing: of `drop_read_resp_middle` the READ that is asked again.
mod asked;
mod asking;
mod machine;
#[path = "../support/mod.rs"]
mod support;

use anyhow::{Context, Result, ensure};
use rnic_stimulus::captures::Capture;
use rnic_stimulus::captures::flow::Flow;
use std::path::PathBuf;
use support::at_both_widths;

/// The flows of a capture.
fn with_flows(name: &str, mut play: impl FnMut(&Flow) -> Result<usize>) -> Result<usize> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/vectors/{name}.pcap"));
    let capture = Capture::read(&path)?;
    let flows = Flow::of(&capture);
    ensure!(!flows.is_empty(), "{name} holds nothing of the reliable service");
    let mut count = 0;
    for flow in &flows {
        count += play(flow)
            .with_context(|| format!("{name}, queue pair {:#x} of {:?}", flow.number, flow.host))?;
    }
    Ok(count)
}

/// Captures, and how many answers they hold at least.
const ASKED: [(&str, usize); 11] = [
    ("rxe_rc_send_2500", 10),
    ("rxe_rc_write_3000", 5),
    ("rxe_rc_read_5000", 20),
    ("rxe_rc_atomic_fa", 5),
    ("rxe_rc_atomic_cas", 5),
    ("rxe_rsocket_write_imm", 10),
    ("rxe_rc_srq", 10),
    ("rxe_cm_rping", 5),
    ("drop_write_middle", 5),
    ("drop_ack", 5),
    ("corrupt_write_payload_icrc", 5),
];

/// Captures without loss, and how many messages they hold at least.
const ASKING: [(&str, usize); 8] = [
    ("rxe_rc_send_2500", 10),
    ("rxe_rc_write_3000", 5),
    ("rxe_rc_read_5000", 5),
    ("rxe_rc_atomic_fa", 5),
    ("rxe_rc_atomic_cas", 5),
    ("rxe_rsocket_write_imm", 10),
    ("rxe_rc_srq", 10),
    ("rxe_cm_rping", 5),
];

fn the_card_answers_linux_as_linux_does(width_bits: u32) -> Result<()> {
    for (name, least) in ASKED {
        let count = with_flows(name, |flow| asked::replay(width_bits, flow))?;
        assert!(count >= least, "{name}: only {count} answers");
    }
    Ok(())
}

fn the_card_asks_linux_as_linux_does(width_bits: u32) -> Result<()> {
    for (name, least) in ASKING {
        let count = with_flows(name, |flow| asking::replay(width_bits, flow))?;
        assert!(count >= least, "{name}: only {count} messages");
    }
    Ok(())
}

at_both_widths! {
    the_card_answers_linux_as_linux_does: the_card_answers_linux_as_linux_does_at_64_bits, the_card_answers_linux_as_linux_does_at_512_bits;
    the_card_asks_linux_as_linux_does: the_card_asks_linux_as_linux_does_at_64_bits, the_card_asks_linux_as_linux_does_at_512_bits;
}
