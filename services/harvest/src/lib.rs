//! The `harvest` command: talks to a fleet, prepares its database, and runs all of it in one process for development.
//!
//! Start at [`cli`]: one file per command. May depend on every shared crate and every service.

pub mod cli;
