//! The Harvest SDK: durable workflows as ordinary async functions, a worker that runs them, a client that talks to them.
//!
//! ```no_run
//! use harvest_sdk::prelude::*;
//! use std::time::Duration;
//!
//! #[activity(start_to_close = "30s", retry = RetryPolicy::fixed(3, Duration::from_secs(1)))]
//! async fn greet(_ctx: &ActivityContext, name: String) -> Result<String, String> {
//!     Ok(format!("Hello, {name}"))
//! }
//!
//! #[workflow(execution_timeout = "1h")]
//! async fn hello(ctx: &WorkflowContext, name: String) -> Result<String, HarvestError> {
//!     ctx.timer("breath", Duration::from_secs(1)).await?;
//!     ctx.execute_activity(&greet, name).await
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let worker = HarvestBuilder::new().workflows(workflows![hello]).activities(activities![greet]).build()?;
//! let running = tokio::spawn(worker.run(std::future::pending()));
//! let client = Client::connect(["http://127.0.0.1:7233"])?;
//! let handle = client.start(&hello, StartOptions::new("hello-1"), "you".to_owned()).await?;
//! println!("{}", handle.result().await?);
//! # running.abort();
//! # Ok(())
//! # }
//! ```
//!
//! A workflow is polled by a deterministic executor ([`mod@workflow`]) against its recorded history: what it awaits must be durable
//! futures of its [`WorkflowContext`], combined with [`join!`], [`try_join!`] and [`select!`] (in order, not random). Activities do the rest.
//! May depend on `sdk-replay`, `wire`, `proto`; never on services or persistence. Start at [`definition`], [`worker`] and [`client`].

extern crate self as harvest_sdk; // so that the attribute macros work inside this crate too

pub mod activity;
pub mod channels;
pub mod client;
pub mod definition;
pub mod error;
mod options;
mod payload;
mod registry;
mod replayer;
mod retry;
pub mod worker;
pub mod workflow;

pub use activity::{ActivityCancelled, ActivityContext, ActivityInfo};
pub use client::{Client, ClientError, ConflictPolicy, StartOptions, WorkflowHandle, WorkflowOutcomeError};
pub use definition::{ActivityDefinition, ActivityRegistration, WorkflowDefinition, WorkflowRegistration};
pub use error::{ActivityFailure, HarvestError, TimeoutKind, WorkflowFailure};
pub use harvest_rpc::Network;
pub use harvest_sdk_macros::{activity, workflow};
pub use options::{ActivityOptions, ChildOptions};
pub use replayer::{ReplayFailure, WorkflowReplayer};
pub use retry::{Jitter, RetryPolicy};
pub use worker::{BuildError, HarvestBuilder, Worker, WorkerConfig, WorkerError};
pub use workflow::{ActivityFuture, Cancelled, Canceller, ChildFuture, ContinueAsNew, SignalFuture, TimerHandle, WorkflowContext, WorkflowInfo};

/// `join!` of the futures crate: waits for all.
pub use futures::join;
/// `select_biased!` of the futures crate: the first branch that is ready, in the order written, so that replay takes the same one.
pub use futures::select_biased as select;
/// `try_join!` of the futures crate: waits for all or the first error.
pub use futures::try_join;
/// The UUID type of [`WorkflowContext::new_uuid`].
pub use uuid::Uuid;

/// What the SDK calls itself in histories.
pub const SDK_VERSION: &str = concat!("harvest-rust/", env!("CARGO_PKG_VERSION"));

/// All that a file with workflows and activities needs.
pub mod prelude {
    pub use crate::{
        ActivityCancelled, ActivityContext, ActivityFailure, ActivityOptions, ChildOptions, Client, HarvestBuilder, HarvestError, Jitter, RetryPolicy,
        StartOptions, TimeoutKind, WorkerConfig, WorkflowContext, WorkflowFailure, activities, activity, workflow, workflows,
    };
}
