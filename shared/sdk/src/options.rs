//! Options of activities and children, as authors write them.

use crate::error::HarvestError;
use crate::retry::RetryPolicy;
use harvest_ids::{DurationMs, TaskQueue};
use harvest_workflow_core::command;
use std::time::Duration;

/// Options of an activity, each `None` unless set. The call site wins over the activity's attribute, which wins over the worker's
/// defaults, which win over the implicit 3 attempts without time limit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActivityOptions {
    /// The queue; the run's own when unset.
    pub queue: Option<String>,
    /// How it is retried.
    pub retry: Option<RetryPolicy>,
    /// The longest one attempt may take.
    pub start_to_close: Option<Duration>,
    /// The longest the first attempt may wait in the queue.
    pub schedule_to_start: Option<Duration>,
    /// The longest silence between heartbeats.
    pub heartbeat_timeout: Option<Duration>,
    /// The longest all attempts and the delays between them may take, from the schedule on.
    pub schedule_to_close: Option<Duration>,
}

impl ActivityOptions {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Sets the longest attempt.
    #[must_use]
    pub fn start_to_close(mut self, longest: Duration) -> Self {
        self.start_to_close = Some(longest);
        self
    }

    /// Sets the longest wait of the first attempt.
    #[must_use]
    pub fn schedule_to_start(mut self, longest: Duration) -> Self {
        self.schedule_to_start = Some(longest);
        self
    }

    /// Sets the longest silence between heartbeats.
    #[must_use]
    pub fn heartbeat_timeout(mut self, longest: Duration) -> Self {
        self.heartbeat_timeout = Some(longest);
        self
    }

    /// Sets the longest time of all attempts and the delays between them.
    #[must_use]
    pub fn schedule_to_close(mut self, longest: Duration) -> Self {
        self.schedule_to_close = Some(longest);
        self
    }

    /// What applies to a local activity: each field from the first of these that sets it.
    pub(crate) fn of_local(call: &Self, attribute: Option<&Self>, floor: &Self) -> Result<command::ActivityOptions, HarvestError> {
        let limits = [
            ("queue", call.queue.is_some()),
            ("schedule_to_start", call.schedule_to_start.is_some()),
            ("heartbeat_timeout", call.heartbeat_timeout.is_some()),
            ("schedule_to_close", call.schedule_to_close.is_some()),
        ];
        if let Some((field, _)) = limits.into_iter().find(|(_, set)| *set) {
            return Err(HarvestError::invalid(field, "it does not apply to a local activity: only retry and start_to_close do"));
        }
        let first = |of: fn(&Self) -> Option<Duration>| of(call).or(attribute.and_then(of)).or(of(floor));
        let retry = call.retry.clone().or_else(|| attribute.and_then(|it| it.retry.clone())).or_else(|| floor.retry.clone());
        let options = Self { retry, start_to_close: first(|it| it.start_to_close), ..Self::default() };
        options.to_core()
    }

    pub(crate) fn to_core(&self) -> Result<command::ActivityOptions, HarvestError> {
        Ok(command::ActivityOptions {
            task_queue: task_queue(self.queue.as_deref())?,
            retry: self.retry.as_ref().map(RetryPolicy::to_core).transpose()?,
            start_to_close: span("start_to_close", self.start_to_close)?,
            schedule_to_start: span("schedule_to_start", self.schedule_to_start)?,
            heartbeat_timeout: span("heartbeat_timeout", self.heartbeat_timeout)?,
            schedule_to_close: span("schedule_to_close", self.schedule_to_close)?,
        })
    }
}

/// Options of a child workflow, each `None` unless set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChildOptions {
    /// The business key; made from the parent's execution id and a counter when unset.
    pub workflow_id: Option<String>,
    /// The queue; the parent's own when unset.
    pub task_queue: Option<String>,
    /// The child's execution timeout; the child's attribute when unset.
    pub execution_timeout: Option<Duration>,
}

impl ChildOptions {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the business key.
    #[must_use]
    pub fn workflow_id(mut self, workflow_id: impl Into<String>) -> Self {
        self.workflow_id = Some(workflow_id.into());
        self
    }

    /// Sets the queue.
    #[must_use]
    pub fn task_queue(mut self, task_queue: impl Into<String>) -> Self {
        self.task_queue = Some(task_queue.into());
        self
    }

    /// Sets the execution timeout.
    #[must_use]
    pub fn execution_timeout(mut self, longest: Duration) -> Self {
        self.execution_timeout = Some(longest);
        self
    }
}

/// Checks an optional span.
pub(crate) fn span(field: &str, value: Option<Duration>) -> Result<Option<DurationMs>, HarvestError> {
    value.map(|value| DurationMs::from_duration(field, value).map_err(|error| HarvestError::invalid(field, error))).transpose()
}

/// Checks an optional queue name.
pub(crate) fn task_queue(name: Option<&str>) -> Result<Option<TaskQueue>, HarvestError> {
    name.map(|name| TaskQueue::new(name).map_err(|error| HarvestError::invalid("task_queue", error))).transpose()
}
