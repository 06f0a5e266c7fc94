//! Options of a start.

use harvest_proto::v1;
use std::time::Duration;

/// What a start does when a run of the same type and business key is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictPolicy {
    /// Return the open run.
    #[default]
    UseExisting,
    /// Fail with [`ClientError::AlreadyExists`](crate::ClientError::AlreadyExists).
    Fail,
}

impl ConflictPolicy {
    pub(crate) fn to_proto(self) -> v1::ConflictPolicy {
        match self {
            Self::UseExisting => v1::ConflictPolicy::UseExisting,
            Self::Fail => v1::ConflictPolicy::Fail,
        }
    }
}

/// Options of a start. All but the business key may stay unset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartOptions {
    pub(crate) workflow_id: String,
    pub(crate) task_queue: Option<String>,
    pub(crate) request_id: Option<String>,
    pub(crate) execution_timeout: Option<Duration>,
    pub(crate) sla: Option<Duration>,
    pub(crate) workflow_task_timeout: Option<Duration>,
    pub(crate) conflict_policy: ConflictPolicy,
}

impl StartOptions {
    /// A start under a business key, 1 to 255 bytes; empty = the server makes one up.
    pub fn new(workflow_id: impl Into<String>) -> Self {
        Self { workflow_id: workflow_id.into(), ..Self::default() }
    }

    /// Sets the queue; default `default`.
    #[must_use]
    pub fn task_queue(mut self, task_queue: impl Into<String>) -> Self {
        self.task_queue = Some(task_queue.into());
        self
    }

    /// Sets the request id, for callers that repeat a start across their own restarts; default a new one per call.
    #[must_use]
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// Sets the execution timeout, 1 ms to 10 years; default the workflow's attribute.
    #[must_use]
    pub fn execution_timeout(mut self, longest: Duration) -> Self {
        self.execution_timeout = Some(longest);
        self
    }

    /// Sets after how long the run counts as late, 1 ms to 10 years; default the workflow's attribute. Nothing happens to the run then.
    #[must_use]
    pub fn sla(mut self, sla: Duration) -> Self {
        self.sla = Some(sla);
        self
    }

    /// Sets how long one workflow task may stay with a worker, 1 s to 10 min; default 10 s.
    #[must_use]
    pub fn workflow_task_timeout(mut self, longest: Duration) -> Self {
        self.workflow_task_timeout = Some(longest);
        self
    }

    /// Sets what happens when a run of the same type and business key is open.
    #[must_use]
    pub fn conflict_policy(mut self, policy: ConflictPolicy) -> Self {
        self.conflict_policy = policy;
        self
    }
}
