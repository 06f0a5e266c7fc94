//! What workflow and activity code sees and says when something fails.

use crate::payload;
use harvest_workflow_core::event::ActivityTimeout;
use harvest_workflow_core::payload::{Failure, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Which limit an activity ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutKind {
    /// One attempt took too long.
    StartToClose,
    /// Nobody took it from the queue in time.
    ScheduleToStart,
    /// All attempts together took too long.
    ScheduleToClose,
    /// The worker stopped sending heartbeats.
    Heartbeat,
}

impl From<ActivityTimeout> for TimeoutKind {
    fn from(timeout: ActivityTimeout) -> Self {
        match timeout {
            ActivityTimeout::StartToClose => Self::StartToClose,
            ActivityTimeout::ScheduleToStart => Self::ScheduleToStart,
            ActivityTimeout::ScheduleToClose => Self::ScheduleToClose,
            ActivityTimeout::Heartbeat => Self::Heartbeat,
        }
    }
}

/// What workflow code gets when a step of it fails.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HarvestError {
    /// An activity failed and is not retried any more.
    #[error("activity {activity_type} failed at attempt {attempt}: {error_type}: {message}")]
    ActivityFailed {
        /// The activity.
        activity_type: String,
        /// The last attempt, from 1.
        attempt: u32,
        /// The error type that the activity gave; `Error` for plain texts.
        error_type: String,
        /// For people.
        message: String,
        /// For programs, as JSON.
        details: Option<Box<serde_json::Value>>,
        /// The activity asked not to be retried.
        non_retryable: bool,
    },
    /// An activity ran out of time and is not retried any more.
    #[error("activity {activity_type} timed out at attempt {attempt}: {timeout:?}")]
    Timeout {
        /// The activity.
        activity_type: String,
        /// The last attempt, from 1.
        attempt: u32,
        /// Which limit.
        timeout: TimeoutKind,
    },
    /// The run was asked to cancel itself, or the awaited thing was cancelled by the code. A workflow that was asked to cancel and returns
    /// this ends as CANCELLED.
    #[error("cancelled: {reason}")]
    Cancelled {
        /// Why.
        reason: String,
    },
    /// A child workflow ended otherwise than with a result, or could not be started.
    #[error("child workflow {workflow_type} ({workflow_id}) failed: {error_type}: {message}")]
    ChildFailed {
        /// The child's type.
        workflow_type: String,
        /// The child's business key.
        workflow_id: String,
        /// The child's own error type, or `ChildCancelled`, `ChildTerminated`, `ChildTimedOut`, `ChildAlreadyRunning`, ...
        error_type: String,
        /// For people.
        message: String,
        /// For programs, as JSON.
        details: Option<Box<serde_json::Value>>,
    },
    /// A value could not be written as or read from JSON.
    #[error("{what} could not be converted: {message}")]
    Serialization {
        /// Which value.
        what: String,
        /// Why.
        message: String,
    },
    /// The code asked for something that no server accepts: a name that is too long, a duration out of range, a timer id in use.
    #[error("{field}: {message}")]
    InvalidArgument {
        /// The argument.
        field: String,
        /// What is wrong and what is allowed.
        message: String,
    },
}

impl HarvestError {
    /// An argument that no server accepts.
    pub(crate) fn invalid(field: &str, message: impl ToString) -> Self {
        Self::InvalidArgument { field: field.to_owned(), message: message.to_string() }
    }

    /// The error type of an activity's or child's failure; the variant's name otherwise.
    pub fn error_type(&self) -> &str {
        match self {
            Self::ActivityFailed { error_type, .. } | Self::ChildFailed { error_type, .. } => error_type,
            Self::Timeout { .. } => "Timeout",
            Self::Cancelled { .. } => CANCELLED,
            Self::Serialization { .. } => "Serialization",
            Self::InvalidArgument { .. } => "InvalidArgument",
        }
    }

    fn details(&self) -> Option<serde_json::Value> {
        match self {
            Self::ActivityFailed { details, .. } | Self::ChildFailed { details, .. } => details.as_deref().cloned(),
            Self::Timeout { .. } | Self::Cancelled { .. } | Self::Serialization { .. } | Self::InvalidArgument { .. } => None,
        }
    }
}

impl From<HarvestError> for String {
    fn from(error: HarvestError) -> Self {
        error.to_string()
    }
}

/// The error type of cancellation.
pub(crate) const CANCELLED: &str = "Cancelled";
/// The error type of failures that gave none.
pub(crate) const UNTYPED: &str = "Error";
/// The error type of a panic.
pub(crate) const HANDLER_PANIC: &str = "HandlerPanic";

/// Why an activity failed, as its code says it. Made from a text, or with a type that retry policies and workflows can match.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivityFailure {
    /// For matching: in `RetryPolicy::non_retryable_errors` and in workflow code.
    pub error_type: String,
    /// For people.
    pub message: String,
    /// For programs, as JSON.
    pub details: Option<serde_json::Value>,
    /// Do not retry, whatever the policy.
    pub non_retryable: bool,
    /// Wait this long before the next attempt, instead of what the policy says. The server has a ceiling (15 min unless configured).
    pub retry_after: Option<Duration>,
}

impl ActivityFailure {
    /// A retryable failure.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self { error_type: error_type.into(), message: message.into(), details: None, non_retryable: false, retry_after: None }
    }

    /// A failure that is not retried.
    pub fn non_retryable(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self { non_retryable: true, ..Self::new(error_type, message) }
    }

    /// Adds details for programs.
    ///
    /// # Errors
    /// [`HarvestError::Serialization`].
    pub fn with_details<T: Serialize>(mut self, details: &T) -> Result<Self, HarvestError> {
        self.details = Some(payload::to_value("details", details)?);
        Ok(self)
    }

    /// Sets the delay before the next attempt.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    pub(crate) fn to_core(&self) -> Failure {
        failure(&self.error_type, &self.message, self.details.as_ref(), self.non_retryable)
    }
}

impl From<String> for ActivityFailure {
    fn from(message: String) -> Self {
        Self::new(UNTYPED, message)
    }
}

impl From<&str> for ActivityFailure {
    fn from(message: &str) -> Self {
        Self::new(UNTYPED, message)
    }
}

impl From<HarvestError> for ActivityFailure {
    fn from(error: HarvestError) -> Self {
        Self { details: error.details(), ..Self::new(error.error_type(), error.to_string()) }
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for ActivityFailure {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::new(UNTYPED, error.to_string())
    }
}

/// Why a workflow failed, as its code says it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowFailure {
    /// For matching, in parents and clients.
    pub error_type: String,
    /// For people.
    pub message: String,
    /// For programs, as JSON.
    pub details: Option<serde_json::Value>,
    /// Advice to whoever might retry.
    pub non_retryable: bool,
}

impl WorkflowFailure {
    /// A failure of a type.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self { error_type: error_type.into(), message: message.into(), details: None, non_retryable: false }
    }

    /// Adds details for programs.
    ///
    /// # Errors
    /// [`HarvestError::Serialization`].
    pub fn with_details<T: Serialize>(mut self, details: &T) -> Result<Self, HarvestError> {
        self.details = Some(payload::to_value("details", details)?);
        Ok(self)
    }

    /// Whether this says that the workflow stopped because it was asked to: by its type, or, for code whose errors are texts, by the
    /// text of [`HarvestError::Cancelled`] with the reason that was given.
    pub(crate) fn is_cancellation(&self, reason: &str) -> bool {
        self.error_type == CANCELLED || self.message == String::from(HarvestError::Cancelled { reason: reason.to_owned() })
    }

    pub(crate) fn to_core(&self) -> Failure {
        failure(&self.error_type, &self.message, self.details.as_ref(), self.non_retryable)
    }
}

impl From<String> for WorkflowFailure {
    fn from(message: String) -> Self {
        Self::new(UNTYPED, message)
    }
}

impl From<&str> for WorkflowFailure {
    fn from(message: &str) -> Self {
        Self::new(UNTYPED, message)
    }
}

impl From<HarvestError> for WorkflowFailure {
    fn from(error: HarvestError) -> Self {
        Self { details: error.details(), ..Self::new(error.error_type(), error.to_string()) }
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for WorkflowFailure {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self::new(UNTYPED, error.to_string())
    }
}

fn failure(error_type: &str, message: &str, details: Option<&serde_json::Value>, non_retryable: bool) -> Failure {
    let error_type = if error_type.is_empty() { UNTYPED } else { error_type };
    Failure { message: message.to_owned(), error_type: error_type.to_owned(), details: details.map(|value| Payload::json(value.to_string())), non_retryable }
}

/// The details of a failure as JSON; what is not JSON is left out.
pub(crate) fn details_value(details: Option<&Payload>) -> Option<serde_json::Value> {
    payload::from_payload::<serde_json::Value>("details", details?).ok()
}

/// Reads the details of a failure.
///
/// # Errors
/// [`HarvestError::Serialization`] when they are of another shape.
pub fn read_details<T: DeserializeOwned>(details: &serde_json::Value) -> Result<T, HarvestError> {
    serde_json::from_value(details.clone()).map_err(|error| HarvestError::Serialization { what: "details".to_owned(), message: error.to_string() })
}
