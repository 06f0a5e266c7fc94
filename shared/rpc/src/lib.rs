//! How processes of a fleet call each other: reasons of refusals, servers, channels, deadlines, retries.
//!
//! [`reason`] is the only place that knows what a refusal is in gRPC and in HTTP; [`error`] carries one over the wire; [`server`] binds and
//! serves with health and reflection; [`client`] keeps channels and retries within the caller's deadline; [`network`] is what both go
//! over, and [`in_process`] one without sockets. May depend on ids, proto, tonic and tokio; never on the core or a service.

pub mod client;
pub mod deadline;
pub mod error;
pub mod in_process;
pub mod network;
pub mod reason;
pub mod request_bytes;
pub mod server;

pub use client::{ChannelOptions, Channels, retry_until};
pub use error::Error;
pub use in_process::InProcess;
pub use network::Network;
pub use reason::Reason;
pub use server::{MAX_MESSAGE_BYTES, ServeError, Server};
