//! Random operations between two hosts, and what must come of them.
//!
//! ```text
//!   seed ──> Plan ──┬──> Model ── completions, memory, events that must be ──┐
//!                   │                                                        ▼
//!                   └──> run ──> Machine ── completions, memory, events ──> equal?
//!                                   │
//!                        Endpoints: two reference endpoints, back to back
//!                        Cards:     two cards behind the driver, in whatever world they live
//! ```
//!
//! * A [`Plan`] says what is asked for: messages of all kinds over many queue pairs in both directions, and on some of the
//!   queue pairs, at their end, one mistake.
//! * The [`Model`] says what that must lead to, from the protocol and the layout alone. It knows nothing of time: whatever
//!   order the messages of different queue pairs take, the result is one.
//! * [`run()`] does what the plan says on a [`Machine`], in an order drawn from the seed, and compares everything.
pub mod arena;
pub mod cards;
pub mod endpoints;
pub mod model;
pub mod plan;
pub mod run;
pub mod tamper;

pub use cards::Cards;
pub use endpoints::Endpoints;
pub use model::Model;
pub use plan::{Plan, PlanOptions};
pub use run::{Machine, Outcome, Totals, run};
