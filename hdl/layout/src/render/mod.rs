//! The register manual and the C header, rendered from the tables.
//!
//! Both are written to any [`core::fmt::Write`], so that the crate needs no allocator.

mod header;
mod manual;

pub use header::c_header;
pub use manual::manual;

use crate::admin;
use crate::doorbell;
use crate::field::{Record, ValueTable};
use crate::queue::completion::{CompletionOpcode, CompletionStatus, Cqe};
use crate::queue::event::{AsyncEvent, Eqe, EventKind};
use crate::queue::receive::ReceiveWqe;
use crate::queue::send::{AtomicWqe, DatagramWqe, SendWqe, SendWqeExtension, Sge, WqeOpcode};
use crate::registers;
use crate::state;
use core::fmt::{self, Write};

/// Records of the rings between a process and the card, in the order of the manual.
pub const QUEUE_RECORDS: &[&Record] = &[
    &SendWqe::RECORD,
    &DatagramWqe::RECORD,
    &AtomicWqe::RECORD,
    &SendWqeExtension::RECORD,
    &Sge::RECORD,
    &ReceiveWqe::RECORD,
    &Cqe::RECORD,
    &Eqe::RECORD,
];

/// Enumerations that software sees, in the order of the manual.
pub const VALUE_TABLES: &[&ValueTable] = &[
    &registers::FatalCode::TABLE,
    &registers::MemoryKind::TABLE,
    &registers::PoolRest::TABLE,
    &doorbell::Arm::TABLE,
    &WqeOpcode::TABLE,
    &CompletionStatus::TABLE,
    &CompletionOpcode::TABLE,
    &EventKind::TABLE,
    &AsyncEvent::TABLE,
    &admin::CommandOpcode::TABLE,
    &admin::CommandStatus::TABLE,
    &admin::RegionKind::TABLE,
    &admin::Translation::TABLE,
    &state::Service::TABLE,
    &state::QpState::TABLE,
    &state::PathMtu::TABLE,
    &state::Posting::TABLE,
    &state::Traffic::TABLE,
    &state::Cause::TABLE,
];

/// Prints the text of a doc comment on one line, without the brackets of links, with bars escaped for a table cell.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(place) = rest.find(['[', ']', '|', '\n']) {
            let (before, here) = rest.split_at(place);
            f.write_str(before)?;
            let link = here.starts_with("[`") || here.starts_with(']') && before.ends_with('`');
            match here.as_bytes()[0] {
                b'|' => f.write_str("\\|")?,
                b'\n' => f.write_char(' ')?,
                _ if link => {}
                other => f.write_char(other as char)?,
            }
            rest = &here[1..];
        }
        f.write_str(rest)
    }
}

/// Prints a `CamelCase` or `snake_case` name in `SNAKE_CASE` or `snake_case`.
struct Snake<'a>(&'a str, bool);

impl fmt::Display for Snake<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, letter) in self.0.char_indices() {
            if letter.is_ascii_uppercase() && place > 0 && !self.0[..place].ends_with('_') {
                let after_capital = self.0[..place].ends_with(|before: char| before.is_ascii_uppercase());
                if !after_capital {
                    f.write_char('_')?;
                }
            }
            let letter = if self.1 { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
            f.write_char(letter)?;
        }
        Ok(())
    }
}

/// `SNAKE_CASE`, for constants of C.
fn upper(name: &str) -> Snake<'_> {
    Snake(name, true)
}

/// `snake_case`, for types of C.
fn lower(name: &str) -> Snake<'_> {
    Snake(name, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_become_snake_case() {
        assert_eq!(upper("OwnMac").to_string(), "OWN_MAC");
        assert_eq!(upper("WindowType1").to_string(), "WINDOW_TYPE1");
        assert_eq!(upper("RC_SEND_FIRST").to_string(), "RC_SEND_FIRST");
        assert_eq!(lower("CommandStatus").to_string(), "command_status");
        assert_eq!(upper("retry_count").to_string(), "RETRY_COUNT");
    }

    #[test]
    fn links_lose_their_brackets_and_bars_are_escaped() {
        assert_eq!(Plain("see [`Answer`], a|b\nc [0]").to_string(), "see `Answer`, a\\|b c [0]");
    }

    /// The manual prints one writer for each record.
    #[test]
    fn every_record_has_one_writer() {
        let records = registers::REGISTERS
            .iter()
            .map(|register| register.record)
            .chain(doorbell::DOORBELLS.iter().map(|doorbell| doorbell.record))
            .chain(QUEUE_RECORDS.iter().copied())
            .chain(admin::BODIES.iter().map(|body| body.1))
            .chain([
                &admin::CommandHeader::RECORD,
                &admin::Answer::RECORD,
                &crate::context::PathRecord::RECORD,
            ]);
        for record in records {
            assert!(record.fields.iter().all(|field| field.writer == record.writer()), "{}", record.name);
        }
    }

    #[test]
    fn every_list_of_values_that_a_record_uses_is_printed() {
        let software = registers::REGISTERS
            .iter()
            .map(|register| register.record)
            .chain(doorbell::DOORBELLS.iter().map(|doorbell| doorbell.record))
            .chain(QUEUE_RECORDS.iter().copied())
            .chain(admin::BODIES.iter().map(|body| body.1))
            .chain([
                &admin::CommandHeader::RECORD,
                &admin::Answer::RECORD,
                &crate::context::PathRecord::RECORD,
            ]);
        for table in software.flat_map(|record| record.fields).filter_map(|field| field.values) {
            assert!(VALUE_TABLES.contains(&table), "{}", table.name);
        }
    }
}
