//! Random operations between two hosts, and the model of their results.
//!
//! ```text
//!   seed ──> Plan ──┬──> Model ── completions, memory, events that must be ──┐
//!                   │                                                        ▼
//!                   └──> run ──> Machine ── completions, memory, events ──> equal?
//!                                   │
//!                        Endpoints: two reference endpoints, back to back
//!                        Cards:     two cards with their drivers, in any world
//! ```
//!
//! * A [`Plan`] holds the work requests: messages of all kinds over many queue pairs in both directions, and on some of the
//!   queue pairs, as the last one, an invalid one.
//! * The [`Model`] predicts the results, from the protocol and the layout alone. It has no notion of time: the result does not
//!   depend on the order of messages on different queue pairs.
//! * [`run()`] executes the plan on a [`Machine`], in an order drawn from the seed, and compares all results.
pub mod arena;
pub mod cards;
pub mod endpoints;
pub mod forward;
pub mod model;
pub mod plan;
pub mod run;
pub mod tamper;

pub use cards::Cards;
pub use endpoints::Endpoints;
pub use model::Model;
pub use plan::{Plan, PlanOptions};
pub use run::{Machine, Outcome, Totals, run};
