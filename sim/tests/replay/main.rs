//! Captured traffic of two Linux hosts, with the card in the place of one of them.
//!
//! As responder, the card receives the captured requests one after the other, and must respond as Linux did. As requester, its
//! driver posts the work requests of the captured messages; its packets must be the captured ones, and it receives the captured
//! responses. QPNs, keys, addresses and PSNs of the card are its own, so these fields of captured frames are changed, and their
//! ICRC with them.
//!
//! In captures with loss, the card as requester must send again what Linux sent again, and complete what Linux completed.
mod asked;
mod asking;
mod machine;
mod recovering;
#[path = "../support/mod.rs"]
mod support;

use anyhow::{Context, Result, ensure};
use rnic_stimulus::captures::Capture;
use rnic_stimulus::captures::flow::Flow;
use std::path::PathBuf;
use support::at_both_widths;

/// Calls a function with each flow of a capture, and adds up its results.
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

/// Captures, and their minimum number of responses.
const ASKED: [(&str, usize); 12] = [
    ("rxe_rc_send_2500", 10),
    ("rxe_rc_write_3000", 5),
    ("rxe_rc_read_5000", 20),
    ("rxe_rc_atomic_fa", 5),
    ("rxe_rc_atomic_cas", 5),
    ("rxe_rsocket_write_imm", 10),
    ("rxe_rc_srq", 10),
    ("rxe_cm_rping", 5),
    ("drop_write_middle", 5),
    ("drop_read_resp_middle", 40),
    ("drop_ack", 5),
    ("corrupt_write_payload_icrc", 5),
];

/// Captures without loss, and their minimum number of messages.
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

/// Captures with loss, and their number of messages.
const RECOVERING: [(&str, usize); 4] = [
    ("drop_write_middle", 5),
    ("drop_read_resp_middle", 5),
    ("drop_ack", 5),
    ("corrupt_write_payload_icrc", 5),
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

fn the_card_recovers_as_linux_does(width_bits: u32) -> Result<()> {
    for (name, messages) in RECOVERING {
        let count = with_flows(name, |flow| recovering::replay(width_bits, flow))?;
        assert_eq!(count, messages, "{name}");
    }
    Ok(())
}

at_both_widths! {
    the_card_answers_linux_as_linux_does: the_card_answers_linux_as_linux_does_at_64_bits, the_card_answers_linux_as_linux_does_at_512_bits;
    the_card_asks_linux_as_linux_does: the_card_asks_linux_as_linux_does_at_64_bits, the_card_asks_linux_as_linux_does_at_512_bits;
    the_card_recovers_as_linux_does: the_card_recovers_as_linux_does_at_64_bits, the_card_recovers_as_linux_does_at_512_bits;
}
