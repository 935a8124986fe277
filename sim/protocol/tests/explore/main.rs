//! The RC protocol, explored exhaustively: all runs of small plans, over all faults of a wire within a bound.
//!
//! Two kinds of exploration:
//!
//! * *Rules*: the wire has no order, the timer fires at any time, answers are sent at any time. No state breaks a rule.
//! * *Ends*: the wire is fair. It does only so many faults, a frame that it does not lose arrives, the timer is longer than a
//!   round trip and the RNR wait longer than the host takes to post a receive WQE. No state is reached again from itself, so
//!   that every run ends, and every end has all messages completed. The longest run and the most retries are printed.
//!
//! The number of states of each space is asserted, so that a bound that cuts runs off is seen. `RNIC_PROTOCOL=large` explores
//! larger spaces. `--nocapture` prints what was explored.
mod checker;
mod cover;
mod ends;
mod faults;
mod rules;
mod traces;

use rnic_protocol::{Kind, Message, Plan};

/// Explores larger spaces, which take minutes.
fn is_large() -> bool {
    std::env::var("RNIC_PROTOCOL").is_ok_and(|value| value == "large")
}

/// Number of states, of the small space or of the large one.
fn states(small: usize, large: usize) -> usize {
    if is_large() { large } else { small }
}

/// A plan of messages of (operation, packets) from a first PSN on.
fn plan(first: u8, messages: &[(Kind, u8)]) -> Plan {
    let messages = messages.iter().map(|&(kind, packets)| Message::new(kind, packets)).collect();
    Plan { first, messages }
}
