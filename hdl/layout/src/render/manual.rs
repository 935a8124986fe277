//! Renderer of the register manual, in Markdown.

use super::{Plain, QUEUE_RECORDS, VALUE_TABLES};
use crate::admin::{Answer, BODIES, CommandHeader, HOST_WAITS};
use crate::context::PathRecord;
use crate::doorbell::DOORBELLS;
use crate::field::{Field, Record, Span, ValueTable, Writer};
use crate::limits::LIMITS;
use crate::opcode::OPCODES;
use crate::pci::{BARS, CONFIG_REGISTERS};
use crate::registers::{
    BAR0_BYTES, COUNTER_BASE, COUNTERS, LAYOUT_MAJOR, LAYOUT_MINOR, POOL_BASE, POOLS, PoolLevel, REGISTERS,
    counter_offset, pool_offset,
};
use crate::state::{
    ATTRIBUTES, AttributeMask, DRAWING, HARDWARE_TRANSITIONS, PERMISSIONS, Service, TRANSITIONS,
};
use crate::syndrome::{CREDITS, RNR_TIMER_STEP_US, RNR_TIMER_STEPS};
use core::fmt::{self, Write};

/// Renders the register manual, `REGISTERS.md`.
///
/// # Errors
///
/// If a write to `out` fails.
pub fn manual(out: &mut dyn Write) -> fmt::Result {
    overview(out)?;
    pci(out)?;
    registers(out)?;
    doorbells(out)?;
    queues(out)?;
    admin(out)?;
    states(out)?;
    wire(out)?;
    contexts(out)?;
    values(out)?;
    limits(out)
}

fn overview(out: &mut dyn Write) -> fmt::Result {
    write!(
        out,
        "# Register manual of the rnic card

Layout version {LAYOUT_MAJOR}.{LAYOUT_MINOR}. This file is rendered from the tables of the crate `rnic-layout`; do not edit it. The hardware of the card, its
driver and `rnic_regs.h` are made from the same tables.

1. [Conventions](#conventions)
2. [PCI function](#pci-function): identity, BARs, configuration space
3. [Registers](#registers) (BAR 0), [counters](#counters) and [pools](#pools)
4. [Doorbells](#doorbells) (BAR 2)
5. [Queues](#queues) in host memory: WQEs, CQEs, EQEs
6. [Admin queue](#admin-queue)
7. [Queue pair states](#queue-pair-states)
8. [On the wire](#on-the-wire): opcodes, credits, RNR delays
9. [Context of a queue pair](#context-of-a-queue-pair)
10. [Values](#values)
11. [Limits](#limits)

## Conventions

* Registers and memory are little-endian. Bit 0 of a record is the least significant bit of its byte 0, so a field `[23:0]`
  is bytes 0, 1 and 2, lowest first. Fields in wire order (immediate data, addresses) say so.
* Reserved bits are written as zero. The card refuses commands and WQEs in which they are not zero, so that a later version can
  give them a meaning. Software ignores reserved bits that it reads.
* *Reset* is the value after a reset of the card, or in a newly created object. *Generated* values are fixed by the
  configuration that the card was generated with.
* *Writer* is the part that writes a record while the card runs: `driver` (software), or the part `control` or `complete` of the
  card. `generated` and `fixed` records never change.
* *Source* cites the rule: `protocol 3.4` is a section of `docs/protocol.md` in the repository of rnic; `design 3.2` and
  `design decision 9` are a section and a decision of `docs/design.md` there.
* Ring indices are free-running, modulo their width; the low bits are the index in the ring.

## Address map

| BAR | Bytes | Content |
|---|---|---|
| 0 | `0x0000` to `{:#06x}` | [Registers](#registers) |
| 0 | `{COUNTER_BASE:#06x}` to `{:#06x}` | [Counters](#counters) |
| 0 | `{POOL_BASE:#06x}` to `{:#06x}` | [Pools](#pools) |
| 2 | page x 4096 | [Doorbells](#doorbells), one page of 4 KiB for each process |
| 4 | | [Table and pending bits](#bars) of MSI-X |

",
        COUNTER_BASE - 1,
        POOL_BASE - 1,
        BAR0_BYTES - 1,
    )
}

fn pci(out: &mut dyn Write) -> fmt::Result {
    out.write_str("## PCI function\n\n")?;
    chapter(out, include_str!("../manual/pci.md"))?;
    out.write_str("\n### BARs\n\n| BAR | Bytes | Name | Content |\n|---|---|---|---|\n")?;
    for bar in &BARS {
        writeln!(out, "| {} | `{:#x}` | `{}` | {} |", bar.index, bar.bytes, bar.name, bar.meaning)?;
    }
    out.write_str(
        "\n### Configuration space\n\n| Offset | Register | Bytes | Reset | Writable | Acts | Meaning |\n|---|---|---|---|---|---|---|\n",
    )?;
    for register in CONFIG_REGISTERS {
        write!(out, "| `{:#05x}` | `{}` | {} |", register.offset, register.name, register.bytes)?;
        let digits = 2 + 2 * usize::from(register.bytes);
        write!(out, " `{:#0digits$x}` |", register.value)?;
        for bits in [register.writable, register.acting] {
            if bits == 0 {
                out.write_str(" |")?;
            } else {
                write!(out, " `{bits:#0digits$x}` |")?;
            }
        }
        writeln!(out, " {} |", Plain(register.meaning))?;
    }
    out.write_str("\n")
}

fn registers(out: &mut dyn Write) -> fmt::Result {
    out.write_str("## Registers\n\n")?;
    chapter(out, include_str!("../manual/registers.md"))?;
    out.write_str("\n| Offset | Register | Access | Content |\n|---|---|---|---|\n")?;
    for register in REGISTERS {
        write!(out, "| `{:#06x}`", register.offset)?;
        if register.count > 1 {
            write!(out, " + {} i, i < {}", register.stride, register.count)?;
        }
        let meaning = Plain(first_sentence(register.record.meaning));
        writeln!(out, " | [`{0}`](#{0}) | {1} | {meaning} |", register.name, register.access.name())?;
    }
    writeln!(
        out,
        "| `{COUNTER_BASE:#06x}` + 8 i | [counters](#counters) | RO | {} counters. |",
        COUNTERS.len()
    )?;
    writeln!(out, "| `{POOL_BASE:#06x}` + 8 i | [pools](#pools) | RO | Levels of {} pools. |", POOLS.len())?;
    for register in REGISTERS {
        writeln!(out, "\n### {}\n\n{}\n", register.name, Plain(register.record.meaning))?;
        write!(out, "Offset `{:#06x}`", register.offset)?;
        if register.count > 1 {
            write!(out, " + {} i, i < {}", register.stride, register.count)?;
        }
        let writer = register.record.writer().name();
        writeln!(
            out,
            ", {}. Writer: {writer}. Source: {}.\n",
            register.access.name(),
            register.record.section
        )?;
        out.write_str("| Bits | Field | Reset | Meaning | Source |\n|---|---|---|---|---|\n")?;
        for span in register.record.spans() {
            row(out, span, Columns { bytes: false, skip_bits: 0 })?;
        }
    }
    writeln!(out, "\n## Counters\n")?;
    writeln!(
        out,
        "Counters are read-only and 64 bits wide, and show the last snapshot (`counter_latch`). The first 21 count drops of the
packet path, one counter for each reason, in the order of the checks; a dropped frame is counted by the first reason that
applies. So `frames_received` is the sum of these 21 and of `requests_received`, `responses_received` and
`congestion_notifications_received`. A request or response that is dropped later is counted by the requester or the responder.

| Offset | Counter | Counts | Source |
|---|---|---|---|"
    )?;
    for (index, counter) in COUNTERS.iter().enumerate() {
        let offset = counter_offset(index);
        writeln!(
            out,
            "| `{offset:#06x}` | `{}` | {} | {} |",
            counter.name,
            Plain(counter.meaning),
            counter.section
        )?;
    }
    pools(out)
}

fn pools(out: &mut dyn Write) -> fmt::Result {
    out.write_str("\n## Pools\n\n")?;
    chapter(out, include_str!("../manual/pools.md"))?;
    out.write_str("\n| Offset | Pool | In use | Zero when | Source |\n|---|---|---|---|---|\n")?;
    for (index, pool) in POOLS.iter().enumerate() {
        writeln!(
            out,
            "| `{:#06x}` | `{}` | {} | [`{}`](#poolrest) | {} |",
            pool_offset(index),
            pool.name,
            Plain(pool.meaning),
            pool.rest.name(),
            pool.section
        )?;
    }
    record(out, &PoolLevel::RECORD, Columns { bytes: false, skip_bits: 0 })
}

fn doorbells(out: &mut dyn Write) -> fmt::Result {
    out.write_str("\n## Doorbells\n\n")?;
    chapter(out, include_str!("../manual/doorbells.md"))?;
    out.write_str("\n| Offset in page | Doorbell | Format |\n|---|---|---|\n")?;
    for doorbell in DOORBELLS {
        let name = doorbell.record.name;
        writeln!(out, "| `{:#05x}` | `{}` | [{name}](#{name}) |", doorbell.offset, doorbell.name)?;
    }
    let mut last = "";
    for doorbell in DOORBELLS.iter().filter(|doorbell| {
        let new = doorbell.record.name != last;
        last = doorbell.record.name;
        new
    }) {
        record(out, doorbell.record, Columns { bytes: false, skip_bits: 0 })?;
    }
    Ok(())
}

fn queues(out: &mut dyn Write) -> fmt::Result {
    out.write_str("\n## Queues\n\n")?;
    chapter(out, include_str!("../manual/queues.md"))?;
    out.write_str("\n### Send queue\n\n")?;
    chapter(out, include_str!("../manual/send.md"))?;
    for table in QUEUE_RECORDS {
        if table.name == "ReceiveWqe" {
            out.write_str("\n### Receive queue\n\n")?;
            chapter(out, include_str!("../manual/receive.md"))?;
        }
        record(out, table, Columns { bytes: true, skip_bits: 0 })?;
    }
    Ok(())
}

fn admin(out: &mut dyn Write) -> fmt::Result {
    out.write_str("\n## Admin queue\n\n")?;
    chapter(out, include_str!("../manual/admin.md"))?;
    let columns = Columns { bytes: true, skip_bits: 0 };
    record(out, &CommandHeader::RECORD, columns)?;
    for (opcodes, body) in BODIES {
        record(out, body, Columns { skip_bits: CommandHeader::RECORD.bits, ..columns })?;
        out.write_str("\nOpcodes:")?;
        for (index, opcode) in opcodes.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma} `{}` ({:#04x})", opcode.name(), opcode.number())?;
        }
        out.write_str(".\n")?;
    }
    record(out, &Answer::RECORD, columns)?;
    out.write_str(
        "\n### Time of a command

A command waits for accesses of the host, one after the other, and the card gives each up after `host_limit`. So a command whose accesses
all end in time is answered within as many times `host_limit` and some microseconds of its own.

| Accesses | Commands | What is waited for |\n|---|---|---|\n",
    )?;
    for wait in HOST_WAITS {
        match wait.accesses {
            0 => out.write_str("| one each | ")?,
            accesses => write!(out, "| {accesses} | ")?,
        }
        if wait.opcodes.is_empty() {
            out.write_str("all")?;
        }
        for (index, opcode) in wait.opcodes.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(out, "{comma}`{}`", opcode.name())?;
        }
        writeln!(out, " | {} |", wait.meaning)?;
    }
    Ok(())
}

fn states(out: &mut dyn Write) -> fmt::Result {
    out.write_str("\n## Queue pair states\n\n")?;
    chapter(out, include_str!("../manual/states.md"))?;
    write!(out, "\n```text\n{DRAWING}```\n\n### Permissions of the states\n\n")?;
    out.write_str(
        "| State | Posted receive WQEs | Posted send WQEs | Packets accepted | Packets sent |\n|---|---|---|---|---|\n",
    )?;
    for row in PERMISSIONS {
        writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            row.state.name(),
            Words(row.post_receive.name()),
            Words(row.post_send.name()),
            Words(row.receive.name()),
            Words(row.transmit.name()),
        )?;
    }
    out.write_str(
        "\n### Attributes\n\n| Bit | Attribute | Field of `ModifyQueuePair` | Allowed |\n|---|---|---|---|\n",
    )?;
    for attribute in ATTRIBUTES {
        let bit = attribute.mask.0.trailing_zeros();
        if attribute.field.is_empty() {
            writeln!(out, "| {bit} | `{}` | | refused: `not_supported` |", attribute.name)?;
        } else {
            let (min, max) = attribute.range;
            writeln!(out, "| {bit} | `{}` | `{}` | {min} to {max} |", attribute.name, attribute.field)?;
        }
    }
    out.write_str(
        "\n### Transitions by command\n\nTransitions to `reset` and to `error` are allowed from any state and
take no attribute. `state` is always allowed in the mask. If a required attribute is missing, or an attribute is not listed, the
command is refused and nothing changes (protocol 4.1).\n",
    )?;
    for service in Service::ALL {
        writeln!(out, "\n#### {}\n", Words(service.name()))?;
        out.write_str("| From | To | Required | Optional |\n|---|---|---|---|\n")?;
        for row in TRANSITIONS.iter().filter(|row| row.service == *service) {
            write!(out, "| `{}` | `{}` |", row.from.name(), row.to.name())?;
            mask(out, row.required)?;
            out.write_str(" |")?;
            mask(out, row.optional)?;
            out.write_str(" |\n")?;
        }
    }
    out.write_str(
        "\n### Transitions by the card\n\nOther causes and states do not change the state.\n\n| Service | From | Cause | To |\n|---|---|---|---|\n",
    )?;
    for row in HARDWARE_TRANSITIONS {
        writeln!(
            out,
            "| {} | `{}` | `{}` | `{}` |",
            Words(row.service.name()),
            row.from.name(),
            row.cause.name(),
            row.to.name()
        )?;
    }
    Ok(())
}

fn wire(out: &mut dyn Write) -> fmt::Result {
    out.write_str(
        "\n## On the wire\n\n### Opcodes\n\nProtocol 1.4. Unlisted opcodes of RC go to the responder, which answers with NAK 0x61.

| Opcode | Name | Extended headers | Bytes of these | Receiver |\n|---|---|---|---|---|\n",
    )?;
    for opcode in &OPCODES {
        write!(out, "| `{:#04x}` | `{}` |", opcode.code, opcode.name)?;
        for header in opcode.extended {
            write!(out, " {}", header.name())?;
        }
        let role = match opcode.class {
            crate::opcode::Class::Request => "responder",
            crate::opcode::Class::Response | crate::opcode::Class::Congestion => "requester",
        };
        writeln!(out, " | {} | {role} |", opcode.extended_bytes())?;
    }
    out.write_str(
        "\n### Syndromes\n\nProtocol 1.6. An AETH syndrome is `000` and a credit code, `001` and a timer code, or `011` and a NAK code.

| Code | Credits | RNR delay |\n|---|---|---|\n",
    )?;
    for (code, (credits, steps)) in CREDITS.iter().zip(RNR_TIMER_STEPS).enumerate() {
        write!(out, "| {code} | ")?;
        match credits {
            Some(credits) => write!(out, "{credits}")?,
            None => out.write_str("not limited")?,
        }
        let microseconds = steps * RNR_TIMER_STEP_US;
        writeln!(out, " | {}.{:02} ms |", microseconds / 1000, microseconds % 1000 / 10)?;
    }
    Ok(())
}

fn contexts(out: &mut dyn Write) -> fmt::Result {
    out.write_str("\n## Context of a queue pair\n\n")?;
    chapter(out, include_str!("../manual/contexts.md"))?;
    record(out, &PathRecord::RECORD, Columns { bytes: false, skip_bits: 0 })
}

fn values(out: &mut dyn Write) -> fmt::Result {
    out.write_str("\n## Values\n")?;
    for table in VALUE_TABLES {
        list(out, table)?;
    }
    Ok(())
}

fn limits(out: &mut dyn Write) -> fmt::Result {
    out.write_str(
        "\n## Limits\n\nBounds of the formats, which no configuration can exceed. A card may have lower ones, which the registers `table_sizes` and
`queue_limits` report.\n\n| Limit | Value | Meaning |\n|---|---|---|\n",
    )?;
    for limit in LIMITS {
        writeln!(out, "| `{}` | {} | {} |", limit.name, limit.value, Plain(limit.meaning))?;
    }
    Ok(())
}

/// Form of a bit table.
#[derive(Clone, Copy)]
struct Columns {
    /// Shows the byte of each field, for records in memory.
    bytes: bool,
    /// Bits of memory before the record.
    skip_bits: u32,
}

fn record(out: &mut dyn Write, record: &Record, columns: Columns) -> fmt::Result {
    writeln!(out, "\n### {}\n\n{}\n", record.name, Plain(record.meaning))?;
    write!(out, "{} bits", record.bits)?;
    if columns.bytes {
        write!(out, ", {} bytes", record.bytes())?;
    }
    if columns.skip_bits > 0 {
        write!(out, ", from byte {} of the command on", columns.skip_bits / 8)?;
    }
    writeln!(out, ". Writer: {}. Source: {}.\n", record.writer().name(), record.section)?;
    let (bytes, dashes) = if columns.bytes { ("Byte | ", "---|") } else { ("", "") };
    writeln!(out, "| {bytes}Bits | Field | Reset | Meaning | Source |")?;
    writeln!(out, "|{dashes}---|---|---|---|---|")?;
    for span in record.spans() {
        row(out, span, columns)?;
    }
    Ok(())
}

fn row(out: &mut dyn Write, span: Span, columns: Columns) -> fmt::Result {
    let (first, end) = match span {
        Span::Field(field) => (field.offset, field.end()),
        Span::Reserved(first, end) => (first, end),
    };
    out.write_str("| ")?;
    if columns.bytes {
        write!(out, "{} | ", (first + columns.skip_bits) / 8)?;
    }
    if end - first == 1 {
        write!(out, "[{first}] | ")?;
    } else {
        write!(out, "[{}:{first}] | ", end - 1)?;
    }
    match span {
        Span::Reserved(..) => {
            writeln!(out, "reserved | 0 | | |")
        }
        Span::Field(field) => {
            write!(out, "`{}` | ", field.name)?;
            reset(out, field)?;
            write!(out, " | {}", Plain(field.meaning))?;
            if !field.unit.is_empty() {
                write!(out, " Unit: {}.", field.unit)?;
            }
            if let Some((min, max)) = field.range {
                write!(out, " Allowed: {min} to {max}.")?;
            }
            if let Some(table) = field.values {
                write!(out, " Values: [{0}](#{0}).", table.name)?;
            }
            writeln!(out, " | {} |", field.section)
        }
    }
}

fn reset(out: &mut dyn Write, field: &Field) -> fmt::Result {
    match (field.writer, field.reset) {
        (Writer::Generated, _) => out.write_str("generated"),
        (_, small @ 0..10) => write!(out, "{small}"),
        (_, large) => write!(out, "{large:#x}"),
    }
}

fn list(out: &mut dyn Write, table: &ValueTable) -> fmt::Result {
    writeln!(out, "\n### {}\n\n{} Source: {}.\n", table.name, Plain(table.meaning), table.section)?;
    out.write_str("| Value | Name | Meaning |\n|---|---|---|\n")?;
    for value in table.values {
        writeln!(out, "| {} | `{}` | {} |", value.value, value.name, Plain(value.meaning))?;
    }
    Ok(())
}

fn mask(out: &mut dyn Write, mask: AttributeMask) -> fmt::Result {
    for attribute in ATTRIBUTES.iter().filter(|attribute| mask.contains(attribute.mask)) {
        write!(out, " `{}`", attribute.name)?;
    }
    Ok(())
}

/// Prints a name with spaces.
struct Words(&'static str);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            f.write_char(if letter == '_' { ' ' } else { letter })?;
        }
        Ok(())
    }
}

/// Prints a module's documentation as a part of the manual: its headings go two levels down, its links lose their
/// brackets.
fn chapter(out: &mut dyn Write, text: &str) -> fmt::Result {
    for line in text.lines() {
        if line.starts_with("# ") {
            out.write_str("##")?;
        }
        let mut rest = line;
        while let Some(place) = rest.find("[`") {
            let (before, link) = rest.split_at(place);
            let end = link.find("`]").map_or(link.len(), |end| end + 1);
            write!(out, "{before}{}", &link[1..end])?;
            rest = link.get(end + 1..).unwrap_or_default();
        }
        writeln!(out, "{rest}")?;
    }
    Ok(())
}

/// The first sentence of a meaning, for tables that are an overview.
fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}
