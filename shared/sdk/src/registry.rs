//! What a worker's code has, and the defaults that apply to it.

use crate::definition::{ActivityRegistration, WorkflowRegistration};
use crate::options::ActivityOptions;
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Values shared with activities, by type.
pub(crate) type StateMap = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// Registered code with its surroundings; immutable once a worker runs.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) workflows: BTreeMap<&'static str, WorkflowRegistration>,
    pub(crate) activities: BTreeMap<&'static str, ActivityRegistration>,
    /// The worker's defaults: only `retry` and `start_to_close` are ever set.
    pub(crate) activity_floor: ActivityOptions,
    /// How full a history or time budget is when a workflow should continue as new.
    pub(crate) continue_as_new: ContinueAsNewAdvice,
    pub(crate) state: Arc<StateMap>,
}

/// When `should_continue_as_new` says yes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContinueAsNewAdvice {
    /// More events than this.
    pub(crate) events: u64,
    /// At least this part of the execution timeout is used, 0 to 1.
    pub(crate) deadline_fraction: f64,
}

impl Default for ContinueAsNewAdvice {
    fn default() -> Self {
        Self { events: 10_000, deadline_fraction: 0.8 }
    }
}
