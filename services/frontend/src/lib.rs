//! The frontend: the stateless edge of the fleet.
//!
//! It validates what clients and workers send ([`harvest_wire`]), finds the shard's owner (`routing`), and retries there within the
//! caller's deadline; a refusal that comes out of here names the field and what is allowed. gRPC `harvest.v1` is served by `grpc`, HTTP and
//! JSON by `http` (the shapes: [`json`]), both over the same calls in `api`; `session` holds the streams of workers. Nothing here is durable.
//! May depend on the shared crates, never on another service's.

mod api;
pub mod config;
mod configs;
mod edge;
mod grpc;
mod http;
pub mod json;
mod refuse;
mod routing;
mod service;
mod session;

pub use config::Config;
pub use edge::Options;
pub use service::{BuildError, Deps, Frontend, RunError, build};
