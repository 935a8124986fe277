//! The ports of a block as numbers with names, whatever their types.
use num_bigint::BigUint;
use rnic_kernel::prelude::*;

/// One port, named as in the emitted Verilog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name of the signal, after the names of the interfaces around it: `rx_beat`.
    pub name: String,
    /// Whether the block reads it.
    pub is_input: bool,
    /// Width in bits.
    pub width: usize,
    /// What it carries.
    pub value: BigUint,
}

/// Reads all ports of `block`, in the order of its declaration.
pub fn ports_of(block: &dyn Block) -> Vec<Port> {
    let mut reader = Reader::default();
    block.accept("block", &mut reader);
    reader.ports
}

#[derive(Default)]
struct Reader {
    interfaces: Vec<String>,
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
        self.interfaces.push(name.into());
    }

    fn visit_end_namespace(&mut self, _name: &str, _block: &dyn Block) {
        self.interfaces.pop();
    }

    fn visit_atom(&mut self, name: &str, atom: &dyn Atom) {
        if self.depth != 1 || !atom.kind().is_parameter() {
            return;
        }
        let names: Vec<&str> = self.interfaces.iter().map(String::as_str).chain([name]).collect();
        self.ports.push(Port {
            name: names.join("_").replace('$', "_"),
            is_input: atom.kind() == AtomKind::InputParameter,
            width: atom.bits(),
            value: number_of(atom),
        });
    }
}

/// rust-hdl keeps the number of a literal to itself, so it is read back from its hexadecimal form.
fn number_of(atom: &dyn Atom) -> BigUint {
    let text = format!("{:x}", atom.verilog());
    let digits = text.split("'h").nth(1).expect("rust-hdl prints literals as <width>'h<digits>");
    BigUint::parse_bytes(digits.as_bytes(), 16).expect("the digits are hexadecimal")
}
