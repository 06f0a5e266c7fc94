//! What a client gets when a call or a run fails.

use crate::channels::AddressError;
use crate::error::HarvestError;
use tonic::{Code, Status};

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
    /// No such run.
    #[error("not found: {0}")]
    NotFound(String),
    /// A run of the same type and business key is open, and the start wanted none.
    #[error("already exists: {0}")]
    AlreadyExists(String),
    /// The run does not take the call, for example because it has ended.
    #[error("refused: {0}")]
    FailedPrecondition(String),
    /// The server refused an argument.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// The token is missing, unknown or may not do this.
    #[error("not allowed: {0}")]
    NotAllowed(String),
    /// No frontend answered within the client's patience. A mutating call may have taken effect.
    #[error("no answer: {0}")]
    Unavailable(String),
    /// Anything else.
    #[error("{code:?}: {message}")]
    Other {
        /// The gRPC code.
        code: Code,
        /// For people.
        message: String,
    },
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        match status.code() {
            Code::NotFound => Self::NotFound(message),
            Code::AlreadyExists => Self::AlreadyExists(message),
            Code::FailedPrecondition => Self::FailedPrecondition(message),
            Code::InvalidArgument | Code::OutOfRange => Self::InvalidArgument(message),
            Code::PermissionDenied | Code::Unauthenticated => Self::NotAllowed(message),
            Code::Unavailable | Code::DeadlineExceeded => Self::Unavailable(message),
            code @ (Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Unimplemented
            | Code::Internal
            | Code::DataLoss) => Self::Other { code, message },
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
