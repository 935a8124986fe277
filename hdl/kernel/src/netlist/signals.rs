//! The signals that a kernel may name, and what it may do with each.
use super::SignalId;
use crate::design::{Atom, ChildKind, Scope};
use crate::ir::SignalKey;
use num_bigint::BigUint;
use rust_hdl::core::prelude::AtomKind;
use rust_hdl::core::type_descriptor::TypeKind;
use std::collections::HashMap;
use std::ops::Index;

/// Index of a child in [`Scope::children`].
type ChildId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Input,
    Output,
    Local,
    Constant,
    /// An input of an instance.
    ChildInput(ChildId),
    /// An output of an instance.
    ChildOutput(ChildId),
    /// `clock`, `reset` or `d` of a register.
    RegisterInput(ChildId),
    /// `q` of a register.
    RegisterOutput(ChildId),
}

impl Role {
    /// Whether the kernel must assign it, and nothing else may.
    pub(crate) fn is_driven_here(self) -> bool {
        matches!(self, Role::Output | Role::Local | Role::ChildInput(_) | Role::RegisterInput(_))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Signal {
    pub(crate) rust_name: String,
    /// Within its block.
    pub(crate) port_name: String,
    /// The field of its block that it is or belongs to.
    pub(crate) field: String,
    pub(crate) role: Role,
    pub(crate) width: usize,
    /// Of constants.
    pub(crate) value: BigUint,
    /// What the values of an enum are called, or the fields of a struct.
    pub(crate) ty: TypeKind,
}

/// All signals of a block and all ports of its children.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    signals: Vec<Signal>,
    by_key: HashMap<SignalKey, SignalId>,
    /// For each child output that follows inputs of that child within the cycle, those inputs.
    paths: HashMap<SignalId, Vec<SignalId>>,
}

impl Signals {
    pub(crate) fn new(scope: &Scope) -> Self {
        let mut table = Signals { signals: Vec::new(), by_key: HashMap::new(), paths: HashMap::new() };
        for atom in &scope.atoms {
            let role = match atom.kind {
                AtomKind::InputParameter => Role::Input,
                AtomKind::OutputParameter => Role::Output,
                AtomKind::Constant => Role::Constant,
                _ => Role::Local,
            };
            table.add(atom, atom.rust_name.clone(), role);
        }
        for (child_id, child) in scope.children.iter().enumerate() {
            let is_register = matches!(child.kind, ChildKind::Register(_));
            for port in &child.ports {
                let role = match (is_register, port.kind == AtomKind::InputParameter) {
                    (true, true) => Role::RegisterInput(child_id),
                    (true, false) => Role::RegisterOutput(child_id),
                    (false, true) => Role::ChildInput(child_id),
                    (false, false) => Role::ChildOutput(child_id),
                };
                table.add(port, format!("{}.{}", child.rust_name, port.rust_name), role);
            }
            for (output, inputs) in &child.paths {
                let id_of = |name: &String| {
                    let port = child.ports.iter().find(|port| port.name == *name)?;
                    table.find(port.key)
                };
                if let Some(output) = id_of(output) {
                    let inputs = inputs.iter().filter_map(id_of).collect();
                    table.paths.insert(output, inputs);
                }
            }
        }
        table
    }

    fn add(&mut self, atom: &Atom, rust_name: String, role: Role) {
        self.by_key.insert(atom.key, self.signals.len());
        self.signals.push(Signal {
            rust_name,
            port_name: atom.name.clone(),
            field: atom.field.clone(),
            role,
            width: atom.width,
            value: atom.value.clone(),
            ty: atom.ty.clone(),
        });
    }

    pub(crate) fn find(&self, key: SignalKey) -> Option<SignalId> {
        self.by_key.get(&key).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SignalId, &Signal)> {
        self.signals.iter().enumerate()
    }

    pub(crate) fn len(&self) -> usize {
        self.signals.len()
    }

    /// The inputs of the same child that a child's output follows within the cycle.
    pub(crate) fn path_to(&self, output: SignalId) -> &[SignalId] {
        self.paths.get(&output).map_or(&[], Vec::as_slice)
    }
}

impl Index<SignalId> for Signals {
    type Output = Signal;

    fn index(&self, id: SignalId) -> &Signal {
        &self.signals[id]
    }
}
