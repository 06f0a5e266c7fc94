//! Who owns what: the slot map, live processes, shard owners, and the leases by which history processes share the shards.
//!
//! Everything here is a hint for routing and for sharing load. Who may write a shard is decided by its epoch in the database alone
//! (`harvest-persistence`). May depend on `harvest-ids`, `harvest-persistence` and `harvest-runtime`.
//! Start at [`Directory`], which every process has; [`LeaseKeeper`] is for history.

mod directory;
mod fleet_clock;
mod keeper;
pub mod placement;
mod plan;
pub mod rendezvous;
mod snapshot;

#[cfg(test)]
mod fake;

pub use directory::{Directory, DirectoryOptions};
pub use fleet_clock::FleetClock;
pub use keeper::{Handed, HostError, LeaseKeeper, LeaseOptions, ShardHost};
pub use snapshot::{LeaseView, Owner, Snapshot};
