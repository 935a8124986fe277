//! The ports of a block as numbers with names, whatever their types: what a bench drives and compares.
use crate::literal::number_of;
use num_bigint::BigUint;
use rust_hdl::core::prelude::*;

/// One port, named as in the emitted Verilog, and its settled value.
#[derive(Clone, Debug)]
pub struct Port {
    /// Name of the signal, with the names of the interfaces around it: `rx_beat`.
    pub name: String,
    /// Whether the block reads it.
    pub is_input: bool,
    /// Width in bits.
    pub width: usize,
    /// What it carries.
    pub value: BigUint,
    /// Its type.
    pub kind: TypeKind,
}

impl Port {
    /// Finds a field of a struct, or with `outer.inner` one of a struct within it: its offset in bits and its width.
    pub fn field(&self, path: &str) -> Option<(usize, usize)> {
        let (mut kind, mut offset) = (&self.kind, 0);
        for name in path.split('.') {
            let TypeKind::Composite(fields) = kind else { return None };
            let place = fields.iter().position(|field| field.fieldname == name)?;
            offset += fields[..place].iter().map(|field| width_of(&field.kind.kind)).sum::<usize>();
            kind = &fields[place].kind.kind;
        }
        Some((offset, width_of(kind)))
    }
}

/// Writes the bits of a value of type `kind` into `words`, from bit `place` on, and moves `place` to its end. The words were zero.
///
/// This is what a waveform gets, and much cheaper than the literal, which is a number of any size.
///
/// # Panics
/// When the value is not of that type.
pub fn put_bits(value: &VCDValue, kind: &TypeKind, words: &mut [u32], place: &mut usize) {
    let VCDValue::Single(one) = VCDValue::from(true) else { unreachable!("a Bit is one bit") };
    let mut put = |is_one: bool| {
        words[*place / 32] |= u32::from(is_one) << (*place % 32);
        *place += 1;
    };
    match (value, kind) {
        (VCDValue::Single(bit), _) => put(*bit == one),
        // The highest bit is the first.
        (VCDValue::Vector(bits), _) => bits.iter().rev().for_each(|bit| put(*bit == one)),
        (VCDValue::String(name), TypeKind::Enum(names)) => {
            // The type has its variants with the name of the enumeration before them.
            let is_named =
                |variant: &String| variant.rsplit(':').next().is_some_and(|own| own.trim() == name);
            let number = names.iter().position(is_named).expect("a variant of the type");
            (0..clog2(names.len())).for_each(|bit| put(number >> bit & 1 == 1));
        }
        (VCDValue::Composite(values), TypeKind::Composite(fields)) => {
            assert_eq!(values.len(), fields.len());
            for (value, field) in values.iter().zip(fields) {
                put_bits(value, &field.kind.kind, words, place);
            }
        }
        _ => panic!("{value:?} is not of type {kind:?}"),
    }
}

fn width_of(kind: &TypeKind) -> usize {
    match kind {
        TypeKind::Bits(width) | TypeKind::Signed(width) => *width,
        TypeKind::Enum(variants) => clog2(variants.len()),
        TypeKind::Composite(fields) => fields.iter().map(|field| width_of(&field.kind.kind)).sum(),
    }
}

/// The field of a type that has just these bits; one of a field has the names of both, joined by a point.
pub(crate) fn field_at(kind: &TypeKind, offset: usize, width: usize) -> Option<String> {
    let TypeKind::Composite(fields) = kind else { return None };
    let mut start = 0;
    for field in fields {
        let (ty, end) = (&field.kind.kind, start + width_of(&field.kind.kind));
        if (start, end) == (offset, offset + width) {
            return Some(field.fieldname.clone());
        }
        if start <= offset && offset < end {
            return Some(format!("{}.{}", field.fieldname, field_at(ty, offset - start, width)?));
        }
        start = end;
    }
    None
}

/// Reads all ports of `block`, in the order of its declaration.
pub fn ports_of(block: &dyn Block) -> Vec<Port> {
    let mut reader = Reader::default();
    block.accept("block", &mut reader);
    reader.ports
}

#[derive(Default)]
struct Reader {
    namespace: Vec<String>,
    depth: usize,
    ports: Vec<Port>,
}

impl Probe for Reader {
    fn visit_start_scope(&mut self, _name: &str, _block: &dyn Block) {
        self.depth += 1;
    }

    fn visit_end_scope(&mut self, _name: &str, _block: &dyn Block) {
        self.depth -= 1;
    }

    fn visit_start_namespace(&mut self, name: &str, _block: &dyn Block) {
        self.namespace.push(name.replace('$', "_"));
    }

    fn visit_end_namespace(&mut self, _name: &str, _block: &dyn Block) {
        self.namespace.pop();
    }

    fn visit_atom(&mut self, name: &str, atom: &dyn Atom) {
        if self.depth != 1 || !atom.kind().is_parameter() {
            return;
        }
        let own = name.replace('$', "_");
        let name = self.namespace.iter().chain([&own]).cloned().collect::<Vec<_>>().join("_");
        self.ports.push(Port {
            name,
            is_input: atom.kind() == AtomKind::InputParameter,
            width: atom.bits(),
            value: number_of(&atom.verilog()).expect("ports are unsigned"),
            kind: atom.descriptor().kind,
        });
    }
}
