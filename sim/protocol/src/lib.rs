//! The RC protocol as a machine of states, small enough to be explored exhaustively.
//!
//! ```text
//!             ┌───────────┐   requests: loses, duplicates, reorders    ┌───────────┐
//!   Plan ───> │ Requester │ ─────────────────────────────────────────> │ Responder │
//!             │           │ <───────────────────────────────────────── │           │
//!             └─────┬─────┘   responses: the same                      └─────┬─────┘
//!                   └──────────────── events ──> Judge <── events ───────────┘
//! ```
//!
//! * It is written from sections 2 and 3 of the protocol reference, and shares no code with the card or with the reference
//!   endpoint: a mistake of theirs cannot be in it.
//! * [`Requester`], [`Responder`] and [`Judge`] are values, and their steps are functions from a value to the next one. A
//!   [`World`] joins them by a wire; [`World::actions`] lists what can happen next, and [`World::after`] is the result.
//! * PSNs have 2 to 4 bits, so that they wrap around within a run. A message has a few packets, which stand for any number.
//! * Each side counts packets from the start of the run, without a bound. A frame carries only the low bits of the count, and
//!   every decision about a frame is made from those, by [`PsnSpace::distance`].
//! * The [`Judge`] sees what each side did, and knows nothing of the protocol. Its rules are listed in [`Violation`].
//! * A [`Fault`] is a mistake that can be planted, to show that the judge sees it.
//! * A [`Trace`] is a run of the model as a list of frames and what became of each, for use against other implementations.
//! * A [`Cover`] chooses runs in which each side meets every [`Decision`] that the explored space has.
//!
//! The tests in `tests/explore` explore it with the model checker `stateright`, and list what they explore.
pub mod plan;
pub mod psn;
pub mod frame;
pub mod requester;
pub mod responder;
pub mod judge;
pub mod world;
pub mod trace;
pub mod decision;
pub mod cover;

pub use cover::Cover;
pub use decision::Decision;
pub use frame::{Body, Nak, Place, Request, Response};
pub use judge::{Event, Judge, Status, Violation};
pub use plan::{Fault, Kind, Message, Plan, RNR_RETRY_ENDLESS, Settings, Timer};
pub use psn::PsnSpace;
pub use requester::Requester;
pub use responder::Responder;
pub use trace::{Fate, Side, Trace};
pub use world::{Action, Step, World};
