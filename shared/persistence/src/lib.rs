//! Where runs are kept: narrow store traits, two implementations ([`postgres`] and [`embedded`]), one conformance suite.
//!
//! May depend on `harvest-ids`, `harvest-workflow-core`, sqlx and rusqlite; the only crate that may use the last two.
//! Start at [`batch::Batch`], the one way in which anything about runs is written, and [`store`] for the traits.

pub mod batch;
pub mod conformance;
pub mod control;
pub mod embedded;
pub mod error;
pub mod postgres;
pub mod provision;
mod slots;
pub mod store;
