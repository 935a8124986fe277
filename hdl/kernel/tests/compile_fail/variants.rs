//! Numbers of enums: matched by variant, and nothing else.
use rnic_kernel::prelude::*;

#[derive(Clone, Copy)]
enum Opcode {
    Send = 1,
    Read = 4,
}

impl Opcode {
    fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Opcode::Send),
            4 => Some(Opcode::Read),
            _ => None,
        }
    }
}

#[kernel]
fn too_early(code: Bits<8>) -> Bits<2> {
    match Opcode::from_number(code.to_u64()) {
        None => bits(0),
        Some(Opcode::Send) => bits(1),
        Some(Opcode::Read) => bits(2),
    }
}

#[kernel]
fn any_of_them(code: Bits<8>) -> Bits<2> {
    match Opcode::from_number(code.to_u64()) {
        Some(_) => bits(1),
        None => bits(0),
    }
}

#[kernel]
fn by_name(code: Bits<8>) -> Bits<2> {
    let opcode = Opcode::from_number(code.to_u64());
    bits(0)
}

#[kernel]
fn misses_a_variant(code: Bits<8>) -> Bits<2> {
    match Opcode::from_number(code.to_u64()) {
        Some(Opcode::Send) => bits(1),
        None => bits(0),
    }
}

fn main() {}
