//! Runnable samples of Harvest: `hello` (the smallest workflow) and the order example.
//!
//! The order example is three programs and an engine. `order-bank` is the outside world, with its own process and file. `order-worker` runs
//! the workflow and its activities. `order-demo` starts twenty orders, approves them, and checks the bank's file against a plan that was
//! fixed before. `./x demo` runs them all and kills the engine in the middle. Start with [`plan`], then [`bank`], then [`verify`].

pub mod bank;
pub mod counter;
pub mod order;
pub mod plan;
pub mod verify;
