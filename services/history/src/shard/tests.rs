//! The engine against faulty stores and a fake fleet.
//!
//! Time is tokio's paused clock: it stands still while anything can run and jumps to the next deadline when nothing can, so "wait until
//! all is at rest" is a sleep of a millisecond, and a test that waits for what never comes ends at its deadline within an instant.

mod activities;
mod answers;
mod backlog;
mod bounds;
mod chains;
mod children;
mod clock;
mod commits;
mod eager;
mod eager_start;
mod faulty;
mod fleet;
mod handover;
mod outage;
mod queries;
mod reannounce;
mod stage;
mod starts;
mod world;
