//! The core's tests: sentences about one rule each, and the laws that hold for every sequence of inputs.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod activities;
mod children;
mod closing;
mod laws;
mod local_activities;
mod oracle;
mod pause;
mod requests;
mod retry;
mod sla;
mod support;
mod timers;
mod workflow_tasks;
