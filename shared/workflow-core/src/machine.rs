//! The things that a run has open, each an enum or a small struct whose parts exist only where they mean something.
//!
//! They change by [`crate::state::State::apply`] alone; everybody else reads them.

pub mod activity;
pub mod child;
pub mod pause;
pub mod signal;
pub mod timer;
pub mod workflow_task;
