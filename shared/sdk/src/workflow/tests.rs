//! The executor against the real core, without a network.

mod bench;
mod code;
mod failures;
mod steps;
