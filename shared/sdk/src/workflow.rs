//! Running workflow code: the context that it sees, its durable futures, and the executor that polls it against a history.
//!
//! All asking is eager: `ctx.execute_activity(..)` asks at once, the future that it returns only waits. So the order of asking is the
//! order in the code, whatever polls the futures first.

mod children;
mod context;
mod future;
pub(crate) mod recorded;
pub(crate) mod run;
pub(crate) mod shared;
mod signals;
#[cfg(test)]
pub(crate) mod tests;

pub use context::{WorkflowContext, WorkflowInfo};
pub use future::{ActivityFuture, Cancelled, Canceller, ChildFuture, ContinueAsNew, SignalFuture, TimerHandle};
