//! Where runs are kept: narrow store traits, two implementations ([`postgres`] and [`embedded`]), one conformance suite.
//!
//! May depend on `harvest-ids`, `harvest-workflow-core`, `harvest-wire`, sqlx and rusqlite; the only crate that may use the last two.
//! Start at [`batch::Batch`], the one way in which anything about runs is written, and [`store`] for the traits.

pub mod batch;
pub mod control;
pub mod error;
pub mod store;
