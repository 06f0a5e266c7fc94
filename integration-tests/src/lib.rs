//! The harness of the end-to-end and crash tests: real service processes on a real Postgres and Redis, or one `harvest dev` process on a store file.
//!
//! - [`fleet`] starts and ends a fleet; [`process`] kills, stops, continues and restarts its processes; [`servers`] has Postgres and Redis;
//!   [`proxy`] stands before them, or before frontends, and lets lines go dead.
//! - [`observer`] is the world outside: what activities really did, kept in the test process.
//! - [`world`] is what a case works with: a namespace, a client, workers; [`suite`] runs many cases on one fleet and reports each by name.
//! - [`audit`] reads the record log of every run from the store and holds it against the oracle, and replays it against the code.
//! - [`samples`] has workflows and activities that several tests share; the `test-worker` binary runs them in a process that can be killed.
//!
//! No test sleeps: they wait for conditions with a deadline ([`mod@eventually`]). May depend on everything but the services' crates.

pub mod audit;
pub mod binaries;
pub mod eventually;
pub mod fleet;
pub mod histories;
pub mod http;
pub mod load;
pub mod observer;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod samples;
pub mod servers;
pub mod store;
pub mod suite;
pub mod world;

pub use eventually::eventually;
pub use fleet::{Fleet, Plan, Topology};
pub use observer::Observer;
pub use world::World;
