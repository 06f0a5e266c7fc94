//! What every Harvest process needs around its service: configuration, telemetry, health, signals, tasks, clocks, ids, crash points.
//!
//! May depend on `harvest-ids` and general libraries; never on another crate of ours. Nothing here is a global except what describes
//! the process as a whole: the log subscriber, the [`metrics`] registry, the [`crash`] point and the tracker behind [`spawn`].
//! Start at [`boot::main`], which a service's `main.rs` calls.

pub mod boot;
pub mod clock;
pub mod config;
pub mod crash;
pub mod health;
pub mod http;
pub mod ids;
pub mod metrics;
pub mod ops;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;

pub use clock::{Clock, ManualClock, SystemClock};
pub use config::{Faults, Settings};
pub use health::Health;
pub use ids::{IdSource, SeededIds, SystemIds};
pub use shutdown::Shutdown;
pub use tasks::{OwnedTask, spawn, spawn_owned};
