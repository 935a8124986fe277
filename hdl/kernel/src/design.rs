//! Walks a tree of blocks and prints every distinct module once.
//!
//! The walk is rust-hdl's `Probe`: it opens a scope for a block, meets its signals and its children, and closes it.
//! Children close before their parents, so a parent already knows which module each child is.
use crate::error::{Fault, GenerateError, LocalFault};
use crate::ir::{RegisterLeaf, SignalKey, Staged};
use crate::leaf;
use crate::literal::number_of;
use crate::verilog::{self, names, stock};
use num_bigint::BigUint;
use rust_hdl::core::prelude::*;
use rust_hdl::core::type_descriptor::{TypeDescriptor, TypeKind};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Prints `block` and everything below it as one Verilog-2005 text. The top module is called `top`.
///
/// # Errors
/// Says for every block what cannot be printed exactly, or is not hardware.
pub fn generate<B: Block>(block: &mut B, top: &str) -> Result<String, GenerateError> {
    generate_design(block, top).map(|design| design.verilog())
}

/// As [`generate`], with the modules one by one.
///
/// # Errors
/// As [`generate`].
pub fn generate_design<B: Block>(block: &mut B, top: &str) -> Result<Design, GenerateError> {
    block.connect_all();
    let mut walk = Walk::default();
    if !names::is_identifier(top) || names::is_reserved(top) {
        let cause = format!("`{top}` cannot be the name of a module");
        walk.report(top, "", vec![LocalFault::block(cause)]);
    }
    block.accept(top, &mut walk);
    walk.finish(top)
}

/// A whole design as text, module by module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    /// Every module follows those that it instantiates; the top is the last.
    pub modules: Vec<Module>,
}

/// One Verilog module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its Verilog name.
    pub name: String,
    /// The Rust type it was printed from, with parameters; empty for blocks of rust-hdl itself.
    pub type_name: String,
    /// From its comment to `endmodule`, with a final newline.
    pub text: String,
    /// The modules in it: instance name and module name, in order.
    pub children: Vec<(String, String)>,
    /// Number of its instances in the whole design.
    pub instance_count: usize,
}

impl Design {
    /// The whole design as one file.
    pub fn verilog(&self) -> String {
        join(self.modules.iter())
    }

    /// The module that contains all others.
    pub fn top(&self) -> &Module {
        self.modules.last().expect("a design has at least its top")
    }

    /// Finds a module by its Verilog name.
    pub fn module(&self, name: &str) -> Option<&Module> {
        self.modules.iter().find(|module| module.name == name)
    }

    /// One module and all that it contains, as one file: what a tool needs to look at a block alone.
    pub fn verilog_of(&self, name: &str) -> Option<String> {
        self.module(name)?;
        let mut wanted = vec![name];
        for module in self.modules.iter().rev() {
            if wanted.contains(&module.name.as_str()) {
                wanted.extend(module.children.iter().map(|(_, child)| child.as_str()));
            }
        }
        Some(join(self.modules.iter().filter(|module| wanted.contains(&module.name.as_str()))))
    }
}

fn join<'a>(modules: impl Iterator<Item = &'a Module>) -> String {
    modules.map(|module| module.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// Index of a module, in the order in which modules are first met.
pub(crate) type ModuleId = usize;

/// A signal or constant of a block, or a port of one of its children.
#[derive(Clone, Debug)]
pub(crate) struct Atom {
    pub(crate) key: SignalKey,
    /// The interface it belongs to, if any.
    pub(crate) group: Option<String>,
    /// The field of the block that it is or belongs to.
    pub(crate) field: String,
    /// As Verilog calls it: interface and signal joined by `_`.
    pub(crate) name: String,
    /// As the kernel writes it: `rx.beat`, `lanes[2]`.
    pub(crate) rust_name: String,
    pub(crate) kind: AtomKind,
    pub(crate) width: usize,
    /// Of constants; of signals, what they hold at the moment.
    pub(crate) value: BigUint,
    /// Its type: the names of the values of an enum, such as `Phase::Idle`, or of the fields of a struct.
    pub(crate) ty: TypeKind,
    /// Why it cannot be printed, if it cannot.
    pub(crate) fault: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(crate) enum ChildKind {
    /// `None` if the child could not be printed.
    Instance(Option<ModuleId>),
    Register(RegisterLeaf),
}

#[derive(Clone, Debug)]
pub(crate) struct Child {
    /// As Verilog calls it.
    pub(crate) name: String,
    /// As the kernel writes it.
    pub(crate) rust_name: String,
    /// The field of the block that it is or belongs to.
    pub(crate) field: String,
    pub(crate) kind: ChildKind,
    pub(crate) ports: Vec<Atom>,
    /// For every output that follows inputs within the cycle, those inputs, by port name.
    pub(crate) paths: Vec<(String, Vec<String>)>,
    /// The names inside the module of an instance.
    pub(crate) names: Rc<BTreeSet<String>>,
}

/// What is inside a block.
#[derive(Clone, Debug)]
pub(crate) enum Code {
    Staged(Staged),
    /// Verilog of a rust-hdl widget.
    Raw(String),
    /// Why there is nothing to print.
    Refused(String),
}

/// A block while it is walked.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) name: String,
    pub(crate) rust_name: String,
    pub(crate) atoms: Vec<Atom>,
    pub(crate) children: Vec<Child>,
    pub(crate) code: Code,
}

impl Scope {
    /// The Rust type of the block, if it said so.
    fn type_name(&self) -> &str {
        match &self.code {
            Code::Staged(Staged::Kernel(kernel)) => &kernel.type_name,
            Code::Staged(Staged::Verilog(leaf)) => &leaf.type_name,
            _ => "",
        }
    }
}

/// The text of a module that has no name yet; its instances have none either.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Body {
    /// Comment lines above the module.
    pub(crate) documentation: Vec<String>,
    /// From the port list to the first instance.
    pub(crate) before: String,
    pub(crate) instances: Vec<Instance>,
    /// From the last instance to `endmodule`.
    pub(crate) after: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Instance {
    pub(crate) module: ModuleId,
    pub(crate) name: String,
    /// From the opening parenthesis on.
    pub(crate) connections: String,
}

/// A module that is known but not yet named.
struct Draft {
    base_name: String,
    type_name: String,
    body: Body,
    paths: Vec<(String, Vec<String>)>,
    names: Rc<BTreeSet<String>>,
}

#[derive(Default)]
struct Walk {
    scopes: Vec<Scope>,
    namespace: Vec<String>,
    drafts: Vec<Draft>,
    /// Equal blocks have the same Rust type, up to its parameters, and the same text.
    known: HashMap<(String, Body), ModuleId>,
    faults: Vec<Fault>,
}

impl Probe for Walk {
    fn visit_start_scope(&mut self, name: &str, block: &dyn Block) {
        self.namespace.clear();
        let scope = Scope {
            name: names::from_rust(name),
            rust_name: rust_name(name),
            atoms: Vec::new(),
            children: Vec::new(),
            code: code_of(block),
        };
        self.scopes.push(scope);
    }

    fn visit_start_namespace(&mut self, name: &str, _block: &dyn Block) {
        self.namespace.push(name.to_owned());
    }

    fn visit_end_namespace(&mut self, _name: &str, _block: &dyn Block) {
        self.namespace.pop();
    }

    fn visit_atom(&mut self, name: &str, atom: &dyn rust_hdl::core::prelude::Atom) {
        let mut path = self.namespace.clone();
        path.push(name.to_owned());
        let verilog_path: Vec<_> = path.iter().map(|part| names::from_rust(part)).collect();
        let rust_path: Vec<_> = path.iter().map(|part| rust_name(part)).collect();
        let fault = fault_of(atom.kind(), &atom.descriptor());
        let atom = Atom {
            key: std::ptr::from_ref(atom).cast::<()>() as SignalKey,
            field: field_name(&path[0]),
            group: self.namespace.first().map(|name| names::from_rust(name)),
            name: verilog_path.join("_"),
            rust_name: rust_path.join("."),
            kind: atom.kind(),
            width: atom.bits(),
            ty: atom.descriptor().kind,
            value: if fault.is_none() {
                number_of(&atom.verilog()).expect("signed signals are refused")
            } else {
                BigUint::default()
            },
            fault,
        };
        self.scopes.last_mut().expect("signals are in blocks").atoms.push(atom);
    }

    fn visit_end_scope(&mut self, _name: &str, _block: &dyn Block) {
        let mut scope = self.scopes.pop().expect("scopes are opened before they are closed");
        stock::recognize_register(&mut scope);
        let is_top = self.scopes.is_empty();
        let kind = match &scope.code {
            Code::Staged(Staged::Register(leaf)) if !is_top => ChildKind::Register(leaf.clone()),
            _ => ChildKind::Instance(self.module(&scope)),
        };
        let (paths, names) = match kind {
            ChildKind::Instance(Some(id)) => (self.drafts[id].paths.clone(), self.drafts[id].names.clone()),
            _ => Default::default(),
        };
        if let Some(parent) = self.scopes.last_mut() {
            let ports = scope.atoms.into_iter().filter(|atom| atom.kind.is_parameter()).collect();
            let Scope { name, rust_name, .. } = scope;
            let field = rust_name.split('[').next().unwrap_or_default().to_owned();
            parent.children.push(Child { name, rust_name, field, kind, ports, paths, names });
        }
    }
}

impl Walk {
    /// Prints a module, or finds the equal one that is there already.
    fn module(&mut self, scope: &Scope) -> Option<ModuleId> {
        let printed = match verilog::print(scope) {
            Ok(printed) => printed,
            Err(faults) => {
                let path: Vec<_> = self.scopes.iter().map(|open| open.rust_name.as_str()).collect();
                let block = [path.as_slice(), &[scope.rust_name.as_str()]].concat().join(".");
                self.report(&block, scope.type_name(), faults);
                return None;
            }
        };
        let path = scope.type_name().split('<').next().unwrap_or_default();
        let id = self.drafts.len();
        let known = self.known.entry((path.to_owned(), printed.body.clone())).or_insert(id);
        if *known == id {
            self.drafts.push(Draft {
                base_name: names::module_base(scope.type_name(), &scope.name),
                type_name: scope.type_name().to_owned(),
                body: printed.body,
                paths: printed.paths,
                names: Rc::new(printed.names),
            });
        }
        Some(*known)
    }

    fn report(&mut self, block: &str, type_name: &str, faults: Vec<LocalFault>) {
        for LocalFault { signal, cause, location } in faults {
            let is_known = |known: &Fault| {
                known.type_name == type_name
                    && (!type_name.is_empty() || known.block == block)
                    && (&known.signal, &known.cause, &known.location) == (&signal, &cause, &location)
            };
            if !self.faults.iter().any(is_known) {
                let (block, type_name) = (block.to_owned(), type_name.to_owned());
                self.faults.push(Fault { block, type_name, signal, cause, location });
            }
        }
    }

    fn finish(self, top: &str) -> Result<Design, GenerateError> {
        if !self.faults.is_empty() {
            return Err(GenerateError { faults: self.faults });
        }
        let types: Vec<_> =
            self.drafts.iter().map(|draft| (draft.base_name.as_str(), draft.type_name.as_str())).collect();
        let names = names::name_modules(&types, top);
        let mut counts = vec![0; self.drafts.len()];
        if let Some(count) = counts.last_mut() {
            *count = 1;
        }
        for (id, draft) in self.drafts.iter().enumerate().rev() {
            draft.body.instances.iter().for_each(|instance| counts[instance.module] += counts[id]);
        }
        // Blocks inside a leaf written by hand serve its simulation only; no instance of them is printed.
        let printed = self.drafts.into_iter().enumerate().filter(|(id, _)| counts[*id] > 0);
        let modules = printed.map(|(id, draft)| Module {
            name: names[id].clone(),
            text: verilog::module_text(&draft.body, &draft.type_name, &names[id], &names),
            children: draft
                .body
                .instances
                .iter()
                .map(|instance| (instance.name.clone(), names[instance.module].clone()))
                .collect(),
            type_name: draft.type_name,
            instance_count: counts[id],
        });
        Ok(Design { modules: modules.collect() })
    }
}

/// The field that `rx` or `lanes$2` is or belongs to.
fn field_name(name: &str) -> String {
    let field = name.split('$').next().unwrap_or_default();
    field.strip_prefix("r#").unwrap_or(field).to_owned()
}

/// rust-hdl writes the third element of `lanes` as `lanes$2`.
fn rust_name(name: &str) -> String {
    let mut parts = name.split('$');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |name, index| format!("{name}[{index}]"))
}

/// What `hdl()` of this block yields: a graph, or Verilog written by hand.
fn code_of(block: &dyn Block) -> Code {
    leaf::collect();
    let verilog = block.hdl();
    if let Some(staged) = leaf::collect() {
        return Code::Staged(staged);
    }
    let refused = |cause: &str| Code::Refused(cause.to_owned());
    match verilog {
        Verilog::Custom(text) => Code::Raw(text),
        Verilog::Combinatorial(_) => {
            refused("is written with rust-hdl's `#[hdl_gen]`, whose Verilog drops widths; use `#[kernel]`")
        }
        Verilog::Empty => refused("says nothing about its Verilog; give its `update` a `#[kernel]`"),
        Verilog::Blackbox(_) => refused("is a rust-hdl `BlackBox`; write a leaf instead"),
        Verilog::Wrapper(_) => refused("is a rust-hdl `Wrapper`; write a leaf instead"),
    }
}

fn fault_of(kind: AtomKind, descriptor: &TypeDescriptor) -> Option<&'static str> {
    if matches!(kind, AtomKind::InOutParameter | AtomKind::OutputPassthrough) {
        return Some("is bidirectional, which only a board's own top can be");
    }
    if kind.is_stub() {
        return Some("is a stub signal of rust-hdl, which has no meaning here");
    }
    is_signed(descriptor).then_some("is signed; keep it in `Bits` and compare by the sign of a difference")
}

fn is_signed(descriptor: &TypeDescriptor) -> bool {
    match &descriptor.kind {
        TypeKind::Signed(_) => true,
        TypeKind::Composite(fields) => fields.iter().any(|field| is_signed(&field.kind)),
        TypeKind::Bits(_) | TypeKind::Enum(_) => false,
    }
}
