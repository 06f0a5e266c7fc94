//! The pure core: the state machine of one run.
//!
//! [`decide::decide`] takes a state and an [`input::Input`] and says what becomes durable ([`record::Record`]s), what goes to other
//! runs ([`message::Message`]s) and what the caller is told ([`decision::Reply`]). [`state::State`] is the fold of the records by
//! [`state::State::apply`], and [`projection::Projection`] is what the engine keeps indexed about it (status, next deadline, pending
//! tasks). No async, clock, randomness, I/O or proto here: time and new ids arrive in the input. May depend on `harvest-ids`,
//! `bytes` and `thiserror` only.

pub mod command;
pub mod decide;
pub mod decision;
pub mod defaults;
pub mod event;
pub mod input;
pub mod limits;
pub mod machine;
pub mod measure;
pub mod message;
pub mod oracle;
pub mod payload;
pub mod projection;
mod random;
pub mod record;
pub mod retry;
pub mod state;

pub use decide::decide;
pub use state::{State, Status};
