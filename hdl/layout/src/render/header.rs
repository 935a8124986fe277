//! The C header.

use super::{QUEUE_RECORDS, VALUE_TABLES, lower, upper};
use crate::admin::{Answer, BODIES, BODY_OFFSET, COMMAND_BYTES, CommandHeader};
use crate::doorbell::{DOORBELLS, PUSH_PAGE_BYTES, PUSH_PAGES_OFFSET};
use crate::field::{Field, Record};
use crate::limits::{DOORBELL_PAGE_BYTES, LIMITS};
use crate::opcode::OPCODES;
use crate::pci::{BARS, CLASS, CONFIG_REGISTERS, DEVICE, REVISION, SUBSYSTEM, SUBSYSTEM_VENDOR, VENDOR};
use crate::registers::{
    BAR0_BYTES, COUNTER_BASE, COUNTERS, DROP_COUNTERS, LAYOUT_MAJOR, LAYOUT_MINOR, MAGIC, POOL_BASE, POOLS,
    PoolLevel, REGISTERS, counter_offset, pool_offset,
};
use crate::state::ATTRIBUTES;
use core::fmt::{self, Write};

const BEGIN: &str = r#"/*
 * rnic_regs.h: registers, doorbells, queue entries and commands of the rnic card.
 *
 * Rendered from the tables of the crate rnic-layout; do not edit. REGISTERS.md describes every field.
 *
 * Byte order: memory and registers are little-endian. RNIC_GET and RNIC_SET access single bytes, so they work on hosts of
 * either byte order and at any alignment. Registers are 64 bits wide; a big-endian host must swap the bytes of a 64-bit
 * access.
 *
 * A field of a register or doorbell has _SHIFT, _WIDTH and _MASK (in place) in a 64-bit value:
 *     (value & RNIC_STATUS_READY_MASK) >> RNIC_STATUS_READY_SHIFT
 * A field of a record in memory has _BYTE and _BITS, the little-endian unit that holds it, and _SHIFT, _WIDTH and
 * _MASK in that unit:
 *     RNIC_GET(cqe, RNIC_CQE_STATUS)
 * Fields wider than 64 bits have _BYTE and _BYTES only.
 *
 * Works with C99 and later, and with C++11 and later.
 */
#ifndef RNIC_REGS_H
#define RNIC_REGS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A condition that the compiler checks, in C99 and C++ alike. */
#define RNIC_STATIC_ASSERT(condition, name) typedef char rnic_assert_##name[(condition) ? 1 : -1]

RNIC_STATIC_ASSERT(CHAR_BIT == 8, bytes_have_eight_bits);
RNIC_STATIC_ASSERT(sizeof(uint64_t) == 8, words_have_eight_bytes);

/* Returns a field of the little-endian unit of `bits` bits at `byte` of a record. */
static inline uint64_t rnic_get(const void *record, size_t byte, unsigned bits, unsigned shift, uint64_t mask)
{
    const unsigned char *bytes = (const unsigned char *)record + byte;
    uint64_t unit = 0;
    unsigned bit;
    for (bit = 0; bit < bits; bit += 8) {
        unit |= (uint64_t)bytes[bit / 8] << bit;
    }
    return (unit & mask) >> shift;
}

/* Writes a field of a record and preserves other bits. The value is truncated to the field. */
static inline void rnic_set(void *record, size_t byte, unsigned bits, unsigned shift, uint64_t mask, uint64_t value)
{
    unsigned char *bytes = (unsigned char *)record + byte;
    uint64_t unit = (value << shift) & mask;
    unsigned bit;
    for (bit = 0; bit < bits; bit += 8) {
        bytes[bit / 8] = (unsigned char)((bytes[bit / 8] & ~(unsigned char)(mask >> bit)) | (unsigned char)(unit >> bit));
    }
}

#define RNIC_GET(record, field) rnic_get((record), field##_BYTE, field##_BITS, field##_SHIFT, field##_MASK)
#define RNIC_SET(record, field, value) \
    rnic_set((record), field##_BYTE, field##_BITS, field##_SHIFT, field##_MASK, (value))

"#;

const END: &str = "
#ifdef __cplusplus
}
#endif

#endif /* RNIC_REGS_H */
";

/// Renders the C header `rnic_regs.h`.
///
/// # Errors
///
/// If a write to `out` fails.
pub fn c_header(out: &mut dyn Write) -> fmt::Result {
    out.write_str(BEGIN)?;
    writeln!(out, "#define RNIC_LAYOUT_MAJOR {LAYOUT_MAJOR}")?;
    writeln!(out, "#define RNIC_LAYOUT_MINOR {LAYOUT_MINOR}")?;
    writeln!(out, "#define RNIC_MAGIC_VALUE {MAGIC:#018x}ull")?;
    writeln!(out, "#define RNIC_BAR0_BYTES {BAR0_BYTES:#x}u")?;

    heading(out, "PCI function: identity, sizes of BARs, offsets in the configuration space")?;
    for (name, value) in [
        ("VENDOR_ID", VENDOR.into()),
        ("DEVICE_ID", DEVICE.into()),
        ("REVISION_ID", REVISION.into()),
        ("CLASS_CODE", CLASS),
        ("SUBSYSTEM_VENDOR_ID", SUBSYSTEM_VENDOR.into()),
        ("SUBSYSTEM_ID", SUBSYSTEM.into()),
    ] {
        writeln!(out, "#define RNIC_PCI_{name} {value:#06x}u")?;
    }
    for bar in &BARS {
        let name = upper(bar.name);
        writeln!(out, "#define RNIC_PCI_BAR_{name} {}u", bar.index)?;
        writeln!(out, "#define RNIC_PCI_BAR_{name}_BYTES {:#x}u", bar.bytes)?;
    }
    for register in CONFIG_REGISTERS {
        writeln!(out, "#define RNIC_PCI_CONFIG_{} {:#05x}u", upper(register.name), register.offset)?;
    }

    heading(out, "Registers: byte offsets in BAR 0, and their fields")?;
    for register in REGISTERS {
        let name = upper(register.name);
        writeln!(out, "#define RNIC_REG_{name} {:#06x}u", register.offset)?;
        if register.count > 1 {
            writeln!(out, "#define RNIC_REG_{name}_COUNT {}u", register.count)?;
            writeln!(out, "#define RNIC_REG_{name}_STRIDE {}u", register.stride)?;
        }
        for field in register.record.fields {
            word_field(out, register.name, field)?;
        }
        writeln!(out, "RNIC_STATIC_ASSERT(RNIC_REG_{name} % 8 == 0, {}_is_aligned);", lower(register.name))?;
    }

    heading(out, "Counters: byte offsets in BAR 0")?;
    writeln!(out, "#define RNIC_COUNTER_BASE {COUNTER_BASE:#06x}u")?;
    writeln!(out, "#define RNIC_COUNTERS {}u", COUNTERS.len())?;
    writeln!(out, "#define RNIC_DROP_COUNTERS {DROP_COUNTERS}u")?;
    for (index, counter) in COUNTERS.iter().enumerate() {
        let note = if counter.is_counted { "" } else { " /* not counted yet: always zero */" };
        writeln!(out, "#define RNIC_COUNTER_{} {:#06x}u{note}", upper(counter.name), counter_offset(index))?;
    }
    out.write_str(
        "RNIC_STATIC_ASSERT(RNIC_COUNTER_BASE + 8 * RNIC_COUNTERS <= RNIC_BAR0_BYTES, counters_fit_the_bar);\n",
    )?;

    heading(out, "Pools: byte offsets in BAR 0 of their levels, and the fields of a level")?;
    writeln!(out, "#define RNIC_POOL_BASE {POOL_BASE:#06x}u")?;
    writeln!(out, "#define RNIC_POOLS {}u", POOLS.len())?;
    for (index, pool) in POOLS.iter().enumerate() {
        writeln!(out, "#define RNIC_POOL_{} {:#06x}u", upper(pool.name), pool_offset(index))?;
    }
    for field in PoolLevel::RECORD.fields {
        word_field(out, PoolLevel::RECORD.name, field)?;
    }
    out.write_str(
        "RNIC_STATIC_ASSERT(RNIC_POOL_BASE + 8 * RNIC_POOLS <= RNIC_BAR0_BYTES, pools_fit_the_bar);\n",
    )?;

    heading(out, "Doorbells: byte offsets in a page of BAR 2, and their fields")?;
    writeln!(out, "#define RNIC_DOORBELL_PAGE_STRIDE {DOORBELL_PAGE_BYTES}u")?;
    writeln!(out, "#define RNIC_PUSH_PAGES {PUSH_PAGES_OFFSET:#08x}u")?;
    writeln!(out, "#define RNIC_PUSH_PAGE_STRIDE {PUSH_PAGE_BYTES}u")?;
    for doorbell in DOORBELLS {
        writeln!(out, "#define RNIC_DOORBELL_{} {:#05x}u", upper(doorbell.name), doorbell.offset)?;
    }
    for (index, doorbell) in DOORBELLS.iter().enumerate() {
        if DOORBELLS[..index].iter().all(|other| other.record.name != doorbell.record.name) {
            for field in doorbell.record.fields {
                word_field(out, doorbell.record.name, field)?;
            }
        }
    }

    heading(out, "WQEs, CQEs and EQEs")?;
    for table in QUEUE_RECORDS {
        record(out, table, 0, table.bytes())?;
    }

    heading(out, "Admin commands: the header, the bodies, the answer")?;
    record(out, &CommandHeader::RECORD, 0, COMMAND_BYTES)?;
    for (_, body) in BODIES {
        record(out, body, BODY_OFFSET as u32, COMMAND_BYTES)?;
    }
    record(out, &Answer::RECORD, 0, Answer::BYTES)?;

    heading(out, "Values")?;
    for table in VALUE_TABLES {
        writeln!(out, "enum rnic_{} {{", lower(table.name))?;
        for (index, value) in table.values.iter().enumerate() {
            let comma = if index + 1 < table.values.len() { "," } else { "" };
            writeln!(out, "    RNIC_{}_{} = {}{comma}", upper(table.name), upper(value.name), value.value)?;
        }
        out.write_str("};\n")?;
    }

    heading(out, "Attributes of a queue pair: bits of the mask of a modify command")?;
    for attribute in ATTRIBUTES {
        writeln!(out, "#define RNIC_ATTRIBUTE_{} {:#010x}u", upper(attribute.name), attribute.mask.0)?;
    }

    heading(out, "Opcodes of the BTH")?;
    for opcode in &OPCODES {
        writeln!(out, "#define RNIC_OPCODE_{} {:#04x}u", opcode.name, opcode.code)?;
    }

    heading(out, "Limits of the formats")?;
    for limit in LIMITS {
        writeln!(out, "#define RNIC_LIMIT_{} {}u", limit.name, limit.value)?;
    }
    out.write_str(END)
}

fn heading(out: &mut dyn Write, text: &str) -> fmt::Result {
    writeln!(out, "\n/* {text}. */")
}

/// Defines the shift, width, mask and reset value of a field of a 64-bit register or doorbell.
fn word_field(out: &mut dyn Write, owner: &str, field: &Field) -> fmt::Result {
    let (owner, name) = (upper(owner), upper(field.name));
    writeln!(out, "#define RNIC_{owner}_{name}_SHIFT {}u", field.offset)?;
    writeln!(out, "#define RNIC_{owner}_{name}_WIDTH {}u", field.width)?;
    writeln!(out, "#define RNIC_{owner}_{name}_MASK {:#018x}ull", field.max() << field.offset)?;
    if field.reset != 0 {
        writeln!(out, "#define RNIC_{owner}_{name}_RESET {:#x}ull", field.reset)?;
    }
    Ok(())
}

/// Defines the fields of a record that starts at byte `skip` of an entry of `size` bytes.
fn record(out: &mut dyn Write, record: &Record, skip: u32, size: usize) -> fmt::Result {
    let owner = upper(record.name);
    writeln!(out, "#define RNIC_{owner}_SIZE {size}u")?;
    for field in record.fields {
        let name = upper(field.name);
        let Some((byte, bits)) = field.access_unit() else {
            writeln!(out, "#define RNIC_{owner}_{name}_BYTE {}u", skip + field.offset / 8)?;
            writeln!(out, "#define RNIC_{owner}_{name}_BYTES {}u", field.width / 8)?;
            continue;
        };
        let shift = field.offset - byte * 8;
        writeln!(out, "#define RNIC_{owner}_{name}_BYTE {}u", skip + byte)?;
        writeln!(out, "#define RNIC_{owner}_{name}_BITS {bits}u")?;
        writeln!(out, "#define RNIC_{owner}_{name}_SHIFT {shift}u")?;
        writeln!(out, "#define RNIC_{owner}_{name}_WIDTH {}u", field.width)?;
        writeln!(out, "#define RNIC_{owner}_{name}_MASK {:#x}ull", field.max() << shift)?;
        writeln!(
            out,
            "RNIC_STATIC_ASSERT(RNIC_{owner}_{name}_BYTE + RNIC_{owner}_{name}_BITS / 8 <= RNIC_{owner}_SIZE, {}_{}_fits);",
            lower(record.name),
            lower(field.name)
        )?;
    }
    Ok(())
}
