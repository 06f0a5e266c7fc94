//! The pure machine of an SDK: history in, resolutions out, commands out.
//!
//! A history is a sequence of *decisions*: a `WorkflowTaskCompleted` that names the last event its worker had seen, followed by
//! exactly one event for each of its commands. [`Machine`] takes events ([`Machine::feed`]), hands them to workflow code one at a
//! time in their recorded order ([`Machine::advance`]), notes what code asks for, and compares that with what is recorded. A
//! decision that the history does not have yet is *live*: its commands are collected for the server ([`Machine::take_completion`]).
//!
//! Because events are applied exactly as far as the recorded decision had seen them, code that ran live and code that is replayed
//! make the same observations in the same order, and code that has changed is found out as a [`Mismatch`].
//!
//! No async, clock, randomness or I/O here: fresh values are passed in. May depend on `harvest-ids`, `bytes`, `thiserror` and the
//! vocabulary of `harvest-workflow-core`. Start at [`machine`].

mod asking;
pub mod error;
mod gate;
mod history;
mod inbox;
mod item;
mod local;
pub mod machine;
mod matching;
mod settle;
#[cfg(test)]
mod tests;

pub use error::{FeedError, Mismatch, ReplayError};
pub use gate::{PATCH_PREFIX, VERSION_PREFIX};
pub use inbox::{Signal, Take};
pub use item::{Handle, Resolution, WaitKey};
pub use local::{LocalActivity, LocalEnd, LocalFailure};
pub use machine::{Completion, Machine, Recorded, Step};
