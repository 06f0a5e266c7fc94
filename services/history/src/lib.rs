//! History: owns shards. It decides, commits and dispatches.
//!
//! Start at [`shard`], the engine of one shard; [`api`] is the way in, [`fleet`] the way out. May depend on the shared crates, never on
//! another service's.

pub mod api;
mod fleet;
pub mod host;
mod reply;
pub mod shard;
