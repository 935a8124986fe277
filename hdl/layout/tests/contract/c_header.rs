//! Compiles the C header as C99 and as C++11, and compares the values that programs print with the tables.

use rnic_layout::admin::{self, BODIES, BODY_OFFSET, CommandHeader};
use rnic_layout::doorbell::DOORBELLS;
use rnic_layout::field::{Field, Record};
use rnic_layout::limits::LIMITS;
use rnic_layout::opcode::OPCODES;
use rnic_layout::pci::{self, BARS, CONFIG_REGISTERS};
use rnic_layout::registers::{COUNTERS, POOLS, PoolLevel, REGISTERS, counter_offset, pool_offset};
use rnic_layout::render::{QUEUE_RECORDS, VALUE_TABLES, c_header};
use rnic_layout::state::ATTRIBUTES;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program with the header, runs it and returns its output.
fn run(name: &str, compiler: &str, flags: &[&str], extension: &str, program: &str) -> String {
    let folder: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let mut header = String::new();
    c_header(&mut header).unwrap();
    fs::write(folder.join("rnic_regs.h"), header).unwrap();
    let source = folder.join("main").with_extension(extension);
    fs::write(&source, program).unwrap();
    let binary = folder.join("main");
    let compiled = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(&folder)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .unwrap_or_else(|error| {
            panic!("cannot run {compiler} ({error}); install a C and C++ compiler, e.g. apt-get install g++")
        });
    assert!(
        compiled.status.success(),
        "{compiler} {flags:?} refuses the header:\n{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let output = Command::new(&binary).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

const BEGIN: &str = "#include <stdio.h>\n#include <string.h>\n#include \"rnic_regs.h\"\n\
    #define SHOW(name) printf(\"%s %llu\\n\", #name, (unsigned long long)(name))\n\
    int main(void)\n{\n    unsigned char entry[64];\n";
const END: &str = "    return 0;\n}\n";

/// Names and numbers that the header must define, spelled here independently of the renderer.
fn expected() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let screaming = |name: &str| {
        let mut text = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !text.is_empty() {
                text.push('_');
            }
            text.push(letter.to_ascii_uppercase());
        }
        text
    };
    let mut word = |owner: &str, field: &Field| {
        let name = format!("RNIC_{owner}_{}", field.name.to_uppercase());
        all.insert(format!("{name}_SHIFT"), u64::from(field.offset));
        let ones = u64::MAX >> (64 - field.width);
        all.insert(format!("{name}_MASK"), ones << field.offset);
    };
    for register in REGISTERS {
        register.record.fields.iter().for_each(|field| word(&register.name.to_uppercase(), field));
    }
    PoolLevel::RECORD.fields.iter().for_each(|field| word("POOL_LEVEL", field));
    for doorbell in DOORBELLS {
        doorbell.record.fields.iter().for_each(|field| word(&screaming(doorbell.record.name), field));
    }
    for register in CONFIG_REGISTERS {
        let name = format!("RNIC_PCI_CONFIG_{}", register.name.to_uppercase());
        all.insert(name, register.offset.into());
    }
    for bar in BARS {
        let name = format!("RNIC_PCI_BAR_{}", bar.name.to_uppercase());
        all.insert(format!("{name}_BYTES"), bar.bytes);
        all.insert(name, bar.index.into());
    }
    all.insert("RNIC_PCI_VENDOR_ID".to_string(), pci::VENDOR.into());
    all.insert("RNIC_PCI_DEVICE_ID".to_string(), pci::DEVICE.into());
    all.insert("RNIC_PCI_CLASS_CODE".to_string(), pci::CLASS.into());
    for register in REGISTERS {
        all.insert(format!("RNIC_REG_{}", register.name.to_uppercase()), u64::from(register.offset));
    }
    for (index, counter) in COUNTERS.iter().enumerate() {
        all.insert(format!("RNIC_COUNTER_{}", counter.name.to_uppercase()), counter_offset(index).into());
    }
    for (index, pool) in POOLS.iter().enumerate() {
        all.insert(format!("RNIC_POOL_{}", pool.name.to_uppercase()), pool_offset(index).into());
    }
    for table in VALUE_TABLES {
        for value in table.values {
            all.insert(format!("RNIC_{}_{}", screaming(table.name), value.name.to_uppercase()), value.value);
        }
    }
    for attribute in ATTRIBUTES {
        all.insert(format!("RNIC_ATTRIBUTE_{}", attribute.name.to_uppercase()), attribute.mask.0.into());
    }
    for opcode in &OPCODES {
        all.insert(format!("RNIC_OPCODE_{}", opcode.name), opcode.code.into());
    }
    for limit in LIMITS {
        all.insert(format!("RNIC_LIMIT_{}", limit.name), limit.value);
    }
    all
}

fn numbers(name: &str, compiler: &str, flags: &[&str], extension: &str) {
    let expected = expected();
    let mut program = String::from(BEGIN);
    program.push_str("    (void)entry;\n");
    for name in expected.keys() {
        writeln!(program, "    SHOW({name});").unwrap();
    }
    program.push_str(END);
    let output = run(name, compiler, flags, extension, &program);
    // SHOW turns the name into text before it is expanded.
    let found: BTreeMap<String, u64> = output
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect();
    assert_eq!(found, expected);
    assert!(found.len() > 500, "only {} numbers were compared", found.len());
}

#[test]
fn the_header_gives_the_numbers_of_the_tables_in_c() {
    numbers("numbers_c", "cc", &["-std=c99"], "c");
}

#[test]
fn the_header_gives_the_numbers_of_the_tables_in_cpp() {
    numbers("numbers_cpp", "c++", &["-std=c++11"], "cpp");
}

/// C sets every field of every record to all ones over zeros, and reads it back over ones; the bytes that C wrote are compared
/// with the table.
#[test]
fn c_reaches_exactly_the_bits_of_every_field() {
    let records: Vec<(&Record, usize)> = QUEUE_RECORDS
        .iter()
        .map(|record| (*record, 0))
        .chain([(&CommandHeader::RECORD, 0), (&admin::Answer::RECORD, 0)])
        .chain(BODIES.iter().map(|body| (body.1, BODY_OFFSET)))
        .collect();
    let mut program = String::from(BEGIN);
    let mut expected = String::new();
    for (record, skip) in records {
        let mut owner = String::new();
        for letter in record.name.chars() {
            if letter.is_uppercase() && !owner.is_empty() {
                owner.push('_');
            }
            owner.push(letter.to_ascii_uppercase());
        }
        for field in record.fields.iter().filter(|field| field.width <= 64) {
            let name = format!("RNIC_{owner}_{}", field.name.to_uppercase());
            writeln!(
                program,
                "    memset(entry, 0, sizeof entry);\n    RNIC_SET(entry, {name}, ~0ull);\n    \
                 printf(\"{name} \");\n    \
                 {{ int i; for (i = 0; i < 64; i++) printf(\"%02x\", entry[i]); }}\n    \
                 memset(entry, 0xff, sizeof entry);\n    \
                 printf(\" %llx\\n\", (unsigned long long)RNIC_GET(entry, {name}));"
            )
            .unwrap();
            let mut bytes = [0u8; 64];
            for bit in field.offset..field.end() {
                bytes[skip + bit as usize / 8] |= 1 << (bit % 8);
            }
            let ones = u64::MAX >> (64 - field.width);
            writeln!(expected, "{name} {} {ones:x}", hex::encode(bytes)).unwrap();
        }
    }
    program.push_str(END);
    assert_eq!(run("fields", "cc", &["-std=c99"], "c", &program), expected);
}
