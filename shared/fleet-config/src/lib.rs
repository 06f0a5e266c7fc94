//! The subscriber side of the fleet's configuration: fleet limits, registered types, served queues, in memory of every process.
//!
//! The config service is the only writer. It broadcasts changes on a [`Bus`]; a broadcast may be lost, so that it is only a hint:
//! versions are consecutive, and whoever misses one pulls the snapshot by gRPC. May depend on `harvest-ids`, `harvest-proto`,
//! `harvest-rpc`, `harvest-runtime` and redis, which no other crate may use. Start at [`ConfigHandle`].

pub mod bus;
mod handle;
mod model;
mod source;

pub use bus::{Bus, BusError, BusEvent, LocalBus, Message, RedisBus};
pub use handle::{ConfigHandle, ConfigOptions};
pub use model::{ActivityTypes, FleetConfig, FleetLimits, MAX_CHAIN_TIMEOUT_FIELD, MAX_EXECUTION_TIMEOUT_FIELD, Version, WorkflowTypeInfo};
pub use source::{ConfigSource, GrpcSource, ShardVersion};
