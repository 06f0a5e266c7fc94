//! Puts a worker together and checks it before it runs.

use crate::definition::{ActivityRegistration, WorkflowRegistration};
use crate::error::HarvestError;
use crate::options::{ActivityOptions, span};
use crate::registry::{ContinueAsNewAdvice, Registry, StateMap};
use crate::worker::{Worker, WorkerConfig};
use harvest_ids::{ActivityType, Namespace, TaskQueue, WorkflowType};
use harvest_rpc::Network;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most queues of one worker.
const MAX_QUEUES: usize = 64;

/// Why a worker cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two workflows or two activities of the same name.
    #[error("{kind} {name:?} is registered twice")]
    Duplicate {
        /// `workflow` or `activity`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A declared option is out of range.
    #[error("{kind} {name:?}: {error}")]
    Declaration {
        /// `workflow` or `activity`.
        kind: &'static str,
        /// The name.
        name: String,
        /// What is wrong.
        error: Box<HarvestError>,
    },
    /// A setting of the worker is out of range.
    #[error("worker configuration: {field}: {message}")]
    Config {
        /// The setting.
        field: &'static str,
        /// What is wrong and what is allowed.
        message: String,
    },
}

/// Puts a worker together.
#[derive(Default)]
pub struct HarvestBuilder {
    workflows: Vec<WorkflowRegistration>,
    activities: Vec<ActivityRegistration>,
    state: StateMap,
    config: WorkerConfig,
    advice: ContinueAsNewAdvice,
    network: Network,
}

impl HarvestBuilder {
    /// Nothing registered, default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds workflows: `.workflows(workflows![order])`.
    #[must_use]
    pub fn workflows(mut self, workflows: impl IntoIterator<Item = WorkflowRegistration>) -> Self {
        self.workflows.extend(workflows);
        self
    }

    /// Adds activities: `.activities(activities![charge])`.
    #[must_use]
    pub fn activities(mut self, activities: impl IntoIterator<Item = ActivityRegistration>) -> Self {
        self.activities.extend(activities);
        self
    }

    /// Shares a value with activities, which find it by its type ([`ActivityContext::state`](crate::ActivityContext::state)). One value per type.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(TypeId::of::<T>(), Arc::new(value));
        self
    }

    /// Sets the worker's settings.
    #[must_use]
    pub fn worker(mut self, config: WorkerConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the network that the frontends are reached over; default TCP. Others: a fleet in this process, or a simulated one.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Sets how many events a history may have before `should_continue_as_new` says yes; default 10 000.
    #[must_use]
    pub fn history_continue_as_new_threshold(mut self, events: u64) -> Self {
        self.advice.events = events;
        self
    }

    /// Sets which part of the execution timeout may be used before `should_continue_as_new` says yes, clamped to 0 to 1; default 0.8.
    #[must_use]
    pub fn history_continue_as_new_deadline_fraction(mut self, fraction: f64) -> Self {
        self.advice.deadline_fraction = if fraction.is_nan() { 0.8 } else { fraction.clamp(0.0, 1.0) };
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    /// [`BuildError`] naming what is wrong.
    pub fn build(self) -> Result<Worker, BuildError> {
        check_config(&self.config)?;
        let floor = ActivityOptions {
            retry: self.config.default_activity_retry_policy.clone(),
            start_to_close: self.config.default_activity_start_to_close,
            ..ActivityOptions::default()
        };
        floor.to_core().map_err(|error| BuildError::Config { field: "default_activity", message: error.to_string() })?;
        let registry = Registry {
            workflows: register_workflows(self.workflows)?,
            activities: register_activities(self.activities)?,
            activity_floor: floor,
            continue_as_new: self.advice,
            state: Arc::new(self.state),
        };
        Ok(Worker::new(Arc::new(registry), self.config, self.network))
    }
}

/// Checks workflows and orders them by name.
pub(crate) fn register_workflows(list: Vec<WorkflowRegistration>) -> Result<BTreeMap<&'static str, WorkflowRegistration>, BuildError> {
    let mut known = BTreeMap::new();
    for workflow in list {
        let name = workflow.name;
        let declaration = |error| BuildError::Declaration { kind: "workflow", name: name.to_owned(), error: Box::new(error) };
        WorkflowType::new(name).map_err(|error| declaration(HarvestError::invalid("name", error)))?;
        span("execution_timeout", workflow.execution_timeout).map_err(declaration)?;
        span("chain_execution_timeout", workflow.chain_execution_timeout).map_err(declaration)?;
        span("sla", workflow.sla).map_err(declaration)?;
        if known.insert(name, workflow).is_some() {
            return Err(BuildError::Duplicate { kind: "workflow", name: name.to_owned() });
        }
    }
    Ok(known)
}

fn register_activities(list: Vec<ActivityRegistration>) -> Result<BTreeMap<&'static str, ActivityRegistration>, BuildError> {
    let mut known = BTreeMap::new();
    for activity in list {
        let name = activity.name;
        let declaration = |error| BuildError::Declaration { kind: "activity", name: name.to_owned(), error: Box::new(error) };
        ActivityType::new(name).map_err(|error| declaration(HarvestError::invalid("name", error)))?;
        activity.options.to_core().map_err(declaration)?;
        if known.insert(name, activity).is_some() {
            return Err(BuildError::Duplicate { kind: "activity", name: name.to_owned() });
        }
    }
    Ok(known)
}

fn check_config(config: &WorkerConfig) -> Result<(), BuildError> {
    let refuse = |field, message: String| Err(BuildError::Config { field, message });
    if config.addresses.is_empty() {
        return refuse("addresses", "at least one is needed".to_owned());
    }
    if config.queues.is_empty() || config.queues.len() > MAX_QUEUES {
        return refuse("queues", format!("are {}; 1 to {MAX_QUEUES} are allowed", config.queues.len()));
    }
    for (index, queue) in config.queues.iter().enumerate() {
        if let Err(error) = TaskQueue::new(queue) {
            return refuse("queues", error.to_string());
        }
        if config.queues[..index].contains(queue) {
            return refuse("queues", format!("{queue:?} is given twice"));
        }
    }
    if let Err(error) = Namespace::new(&config.namespace) {
        return refuse("namespace", error.to_string());
    }
    if config.max_concurrent_workflows == 0 {
        return refuse("max_concurrent_workflows", "is 0; at least 1 is needed".to_owned());
    }
    if let Err(error) = span("max_local_activity_start_to_close", Some(config.max_local_activity_start_to_close)) {
        return refuse("max_local_activity_start_to_close", error.to_string());
    }
    Ok(())
}
