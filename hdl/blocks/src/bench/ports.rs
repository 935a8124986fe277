//! The ports of a block by their places.
use rnic_kernel::prelude::*;

/// Shows all ports of `block` to `see`, with their places in the order of its declaration.
pub(super) fn see_ports(block: &dyn Registers, see: impl FnMut(usize, &dyn Atom)) {
    block.accept_ports(&mut Walker { depth: 0, place: 0, see });
}

/// Counts ports, whatever they are called.
struct Walker<F> {
    depth: usize,
    place: usize,
    see: F,
}

impl<F: FnMut(usize, &dyn Atom)> Probe for Walker<F> {
    fn visit_start_scope(&mut self, _name: &str, _block: &dyn Block) {
        self.depth += 1;
    }

    fn visit_end_scope(&mut self, _name: &str, _block: &dyn Block) {
        self.depth -= 1;
    }

    fn visit_atom(&mut self, _name: &str, atom: &dyn Atom) {
        if self.depth == 0 && atom.kind().is_parameter() {
            (self.see)(self.place, atom);
            self.place += 1;
        }
    }
}
