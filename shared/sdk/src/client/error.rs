//! What a client gets when a call or a run fails.

use crate::channels::{AddressError, reason};
use crate::error::HarvestError;
use harvest_rpc::Reason;
use tonic::Status;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The addresses or the token are not usable.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An argument that no server accepts, or a value that is not JSON.
    #[error(transparent)]
    Argument(#[from] HarvestError),
    /// No such run, type or query.
    #[error("not found: {0}")]
    NotFound(String),
    /// A run of the same type and business key is open, and the start wanted none.
    #[error("already exists: {0}")]
    AlreadyExists(String),
    /// The server refused an argument.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// The token is missing, unknown or may not do this.
    #[error("not allowed: {0}")]
    NotAllowed(String),
    /// No frontend answered within the client's patience. A mutating call may have taken effect.
    #[error("no answer: {0}")]
    Unavailable(String),
    /// Anything else, for example `WORKFLOW_CLOSED`, `LIMIT_REACHED`, `QUERY_FAILED`, `QUERY_TIMEOUT`.
    #[error("{reason}: {message}")]
    Refused {
        /// The server's reason, or the gRPC code of a status that has none.
        reason: String,
        /// For people.
        message: String,
    },
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        let given = reason(&status);
        match given.unwrap_or_else(|| Reason::of_foreign_code(status.code())) {
            Reason::WorkflowNotFound | Reason::UnknownWorkflowType | Reason::UnknownQuery => Self::NotFound(message),
            Reason::AlreadyRunning => Self::AlreadyExists(message),
            Reason::InvalidArgument | Reason::PayloadTooLarge => Self::InvalidArgument(message),
            Reason::PermissionDenied | Reason::Unauthenticated => Self::NotAllowed(message),
            Reason::Unavailable | Reason::ShardNotOwned | Reason::DeadlineExceeded => Self::Unavailable(message),
            other => {
                let reason = if given.is_some() { other.as_str().to_owned() } else { format!("{:?}", status.code()) };
                Self::Refused { reason, message }
            }
        }
    }
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowOutcomeError {
    /// The workflow failed.
    #[error("the workflow failed: {error_type}: {message}")]
    Failed {
        /// The type that the workflow gave; `Error` for plain texts.
        error_type: String,
        /// For people.
        message: String,
        /// For programs, as JSON.
        details: Option<serde_json::Value>,
    },
    /// The workflow cancelled itself because it was asked to.
    #[error("the workflow was cancelled: {0}")]
    Cancelled(String),
    /// The workflow was ended from outside.
    #[error("the workflow was terminated: {0}")]
    Terminated(String),
    /// The workflow ran out of time.
    #[error("the workflow timed out: {0}")]
    TimedOut(String),
    /// The result is of another shape.
    #[error(transparent)]
    Result(#[from] HarvestError),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] ClientError),
}
