//! What the attribute macros make: definitions of workflows and activities, and how a worker registers them.

use crate::activity::ActivityContext;
use crate::error::{ActivityFailure, HarvestError, WorkflowFailure};
use crate::options::ActivityOptions;
use crate::payload;
use crate::workflow::WorkflowContext;
use harvest_workflow_core::payload::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// An owned future that can move between threads.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The result type of a function, taken apart. Lets the macros name the output without knowing how the author wrote the type.
pub trait Outcome {
    /// The type of a success.
    type Ok;
}

impl<T, E> Outcome for Result<T, E> {
    type Ok = T;
}

/// A workflow function with its name and types. Made by `#[workflow]`.
pub trait WorkflowDefinition: Send + Sync + 'static {
    /// The argument; `()` for none, a tuple for several.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// The result.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// The registered name.
    const NAME: &'static str;

    /// The longest a run may take, if declared.
    fn execution_timeout() -> Option<Duration>;

    /// The longest a chain that begins with it may live, if declared.
    fn chain_execution_timeout() -> Option<Duration> {
        None
    }

    /// After how long a run counts as late, if declared.
    fn sla() -> Option<Duration> {
        None
    }

    /// Runs the code.
    fn run(ctx: WorkflowContext, input: Self::Input) -> BoxFuture<Result<Self::Output, WorkflowFailure>>;
}

/// An activity function with its name, types and options. Made by `#[activity]`.
pub trait ActivityDefinition: Send + Sync + 'static {
    /// The argument; `()` for none, a tuple for several.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// The result.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// The registered name.
    const NAME: &'static str;

    /// The attribute's options.
    fn options() -> ActivityOptions;

    /// Whether the attribute says that it runs on the spot, within the workflow task that asks for it.
    fn is_local() -> bool {
        false
    }

    /// Runs one attempt.
    fn run(ctx: ActivityContext, input: Self::Input) -> BoxFuture<Result<Self::Output, ActivityFailure>>;
}

type WorkflowStart = dyn Fn(WorkflowContext, &Payload) -> Result<BoxFuture<Result<Payload, WorkflowFailure>>, HarvestError> + Send + Sync;
type ActivityStart = dyn Fn(ActivityContext, &Payload) -> Result<BoxFuture<Result<Payload, ActivityFailure>>, HarvestError> + Send + Sync;

/// A workflow as a worker holds it. Made by [`workflows!`](crate::workflows).
#[derive(Clone)]
pub struct WorkflowRegistration {
    pub(crate) name: &'static str,
    pub(crate) execution_timeout: Option<Duration>,
    pub(crate) chain_execution_timeout: Option<Duration>,
    pub(crate) sla: Option<Duration>,
    pub(crate) start: Arc<WorkflowStart>,
}

impl WorkflowRegistration {
    /// Registers a definition, named by the function that the macro made.
    pub fn of<W: WorkflowDefinition>(_workflow: impl Fn() -> W) -> Self {
        let start = |ctx: WorkflowContext, input: &Payload| {
            let input = payload::from_payload::<W::Input>("workflow input", input)?;
            let running = W::run(ctx, input);
            Ok(Box::pin(async move { Ok(payload::to_payload("workflow output", &running.await?)?) }) as BoxFuture<_>)
        };
        Self {
            name: W::NAME,
            execution_timeout: W::execution_timeout(),
            chain_execution_timeout: W::chain_execution_timeout(),
            sla: W::sla(),
            start: Arc::new(start),
        }
    }

    /// The registered name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for WorkflowRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowRegistration").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An activity as a worker holds it. Made by [`activities!`](crate::activities).
#[derive(Clone)]
pub struct ActivityRegistration {
    pub(crate) name: &'static str,
    pub(crate) options: ActivityOptions,
    pub(crate) start: Arc<ActivityStart>,
}

impl ActivityRegistration {
    /// Registers a definition, named by the function that the macro made.
    pub fn of<A: ActivityDefinition>(_activity: impl Fn() -> A) -> Self {
        let start = |ctx: ActivityContext, input: &Payload| {
            let input = payload::from_payload::<A::Input>("activity input", input)?;
            let running = A::run(ctx, input);
            Ok(Box::pin(async move { Ok(payload::to_payload("activity output", &running.await?)?) }) as BoxFuture<_>)
        };
        Self { name: A::NAME, options: A::options(), start: Arc::new(start) }
    }

    /// The registered name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for ActivityRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActivityRegistration").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The registrations of workflows: `workflows![order, refund]`.
#[macro_export]
macro_rules! workflows {
    ($($workflow:path),* $(,)?) => { ::std::vec![$($crate::WorkflowRegistration::of($workflow)),*] };
}

/// The registrations of activities: `activities![charge, ship]`.
#[macro_export]
macro_rules! activities {
    ($($activity:path),* $(,)?) => { ::std::vec![$($crate::ActivityRegistration::of($activity)),*] };
}
