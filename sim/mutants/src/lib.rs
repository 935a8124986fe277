//! The mutation gate: does any test of the whole card see a fault?
//!
//! ```text
//! generated Verilog ──> plant ──> one model with all faults of the card ──┐
//! driver, endpoint with the feature `mutants`: faults of [`software`] ───┼──> a judge, with RNIC_MUTANT=<name>
//!                                                                        │      passes: the next judge
//! RNIC_MUTANT=none: the same model and programs, without a fault ────────┘      fails:  the fault is caught
//! ```
//!
//! A mutant is one fault of the table, switched on at run time by the environment variable `RNIC_MUTANT`. The judges are tests
//! of `rnic-sim`, which know nothing of the fault. A mutant that all judges pass is a survivor, and shows that a judge is
//! missing. `scripts/mutants.sh` builds the programs and runs the gate.
//!
//! Faults of the card are planted in the text of the generated Verilog, and only in the model of a test that runs under
//! `RNIC_MUTANT`: nothing of them is in the sources of the hardware. A fault whose place no longer exists is an error, so the
//! table follows the design.
pub mod card;
pub mod gate;
pub mod judges;
pub mod plant;
pub mod recovery;
pub mod software;
pub mod verdict;

use std::borrow::Cow;

/// Environment variable that names the fault; [`UNCHANGED`] is the model without one.
pub const VARIABLE: &str = "RNIC_MUTANT";
/// Name under which the model with all faults runs with none of them switched on.
pub const UNCHANGED: &str = "none";

/// The mutants that `scripts/test.sh` runs: of several stages, each seen within seconds.
pub const SAMPLE: &[&str] = &[
    "torn-doorbell-not-counted",
    "send-overrun-not-seen",
    "msn-one-ahead",
    "place-failure-ignored",
    "expected-state-ignored",
];

/// What a fault does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bound, index or count differs by one.
    OffByOne,
    /// An event, a check or a part of a condition is missing.
    Lost,
    /// Something happens before its time.
    Early,
    /// Something happens after its time.
    Late,
    /// Two values have changed places.
    Swapped,
    /// A number has too few bits, so that it does not wrap or reach where it must.
    WrongWidth,
    /// A field has the value of another one, or none.
    WrongField,
    /// Something does not wait for what must come before it.
    NoWait,
}

impl Kind {
    /// Name in the table of results.
    pub fn name(self) -> &'static str {
        match self {
            Kind::OffByOne => "off by one",
            Kind::Lost => "lost",
            Kind::Early => "early",
            Kind::Late => "late",
            Kind::Swapped => "swapped",
            Kind::WrongWidth => "wrong width",
            Kind::WrongField => "wrong field",
            Kind::NoWait => "no wait",
        }
    }
}

/// Where a fault lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a module of the generated Verilog.
    Module {
        /// Name of the module.
        module: &'static str,
        /// The expression that changes.
        site: Site,
        /// What it becomes; `@` stands for the expression that was there.
        becomes: &'static str,
    },
    /// In the source of a crate, as `mutant!("<name>")`.
    Crate(&'static str),
}

/// An expression in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// What a wire or output is assigned to.
    Signal(&'static str),
    /// What each of several wires is assigned to, where the design has made copies of one decision.
    Signals(&'static [&'static str]),
    /// What stands between `[[` and `]]`, where the text around it is as given; white space does not count.
    Text(&'static str),
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name for `RNIC_MUTANT` and for the table of results.
    pub name: &'static str,
    /// What it does wrong.
    pub kind: Kind,
    /// Where it lies.
    pub place: Place,
    /// Consequence for who uses the card, in a few words.
    pub means: &'static str,
    /// Judge that saw it soonest when the gate ran last; it goes first.
    pub judge: &'static str,
}

impl Fault {
    /// Stage of the pipeline, or program.
    pub fn stage(&self) -> &'static str {
        match self.place {
            Place::Module { module, .. } => module,
            Place::Crate(name) => name,
        }
    }
}

/// All faults: those of the card first.
pub fn faults() -> impl Iterator<Item = &'static Fault> {
    faults_of_card().chain(software::FAULTS)
}

/// Faults of the card: those of [`card`], and those of what recovers.
pub fn faults_of_card() -> impl Iterator<Item = &'static Fault> {
    card::FAULTS.iter().chain(recovery::FAULTS)
}

/// The Verilog of a model for the fault that the environment names: the text itself without `RNIC_MUTANT`.
///
/// # Errors
///
/// [`plant::Error`] lists the faults that no longer apply; also when `RNIC_MUTANT` names no fault.
pub fn verilog_under_test(verilog: &str) -> Result<Cow<'_, str>, plant::Error> {
    let Some(name) = std::env::var_os(VARIABLE) else { return Ok(Cow::Borrowed(verilog)) };
    let is_known = |name: &str| name == UNCHANGED || faults().any(|fault| fault.name == name);
    match name.to_str().filter(|name| is_known(name)) {
        Some(_) => plant::plant(verilog, faults_of_card()).map(Cow::Owned),
        None => Err(plant::Error::Unknown { name: name.to_string_lossy().into_owned() }),
    }
}
