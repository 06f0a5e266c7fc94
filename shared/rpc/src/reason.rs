//! Why a call is refused: the closed list, with its gRPC code, its HTTP status, and whether repeating the call makes sense.

use tonic::Code;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident => ($word:literal, $code:ident, $http:literal, retryable: $retryable:literal, $text:literal),)+) => {
        /// Why a call is refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word on the wire: `reason` of `google.rpc.ErrorInfo` and of the JSON error body.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// The gRPC status code.
            pub fn code(self) -> Code {
                match self { $(Self::$name => Code::$code,)+ }
            }

            /// The HTTP status.
            pub fn http_status(self) -> u16 {
                match self { $(Self::$name => $http,)+ }
            }

            /// Whether the same call (with the same request id) may succeed when it is repeated a little later.
            pub fn retryable(self) -> bool {
                match self { $(Self::$name => $retryable,)+ }
            }

            /// What it means, for people, when there is nothing more exact to say.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// A field is missing, malformed or out of range. Correct the field that the error names.
    InvalidArgument => ("INVALID_ARGUMENT", InvalidArgument, 400, retryable: false, "the request is malformed"),
    /// A payload or the whole body is larger than allowed. Send less, or a reference to it.
    PayloadTooLarge => ("PAYLOAD_TOO_LARGE", InvalidArgument, 413, retryable: false, "the request is too large"),
    /// No such HTTP route.
    UnknownRoute => ("UNKNOWN_ROUTE", Unimplemented, 404, retryable: false, "there is no such route"),
    /// The HTTP route exists with another method.
    MethodNotAllowed => ("METHOD_NOT_ALLOWED", Unimplemented, 405, retryable: false, "the route does not have this method"),
    /// The body is not plain `application/json` in UTF-8.
    UnsupportedMediaType => ("UNSUPPORTED_MEDIA_TYPE", InvalidArgument, 415, retryable: false, "the body must be application/json"),
    /// The body of an HTTP request did not arrive in time. Send it again, faster.
    RequestTimeout => ("REQUEST_TIMEOUT", DeadlineExceeded, 408, retryable: true, "the request did not arrive in time"),
    /// No run with this id or business key in this namespace.
    WorkflowNotFound => ("WORKFLOW_NOT_FOUND", NotFound, 404, retryable: false, "there is no such workflow"),
    /// No worker has ever registered this workflow type. Correct the name, or start a worker that has it.
    UnknownWorkflowType => ("UNKNOWN_WORKFLOW_TYPE", NotFound, 404, retryable: false, "no worker has registered this workflow type"),
    /// A run of the same business key is open and the start asked to fail then.
    AlreadyRunning => ("ALREADY_RUNNING", AlreadyExists, 409, retryable: false, "a run of this workflow id is open"),
    /// The run has ended, so it takes no signal, cancellation or answer any more.
    WorkflowClosed => ("WORKFLOW_CLOSED", FailedPrecondition, 409, retryable: false, "the workflow has ended"),
    /// The answer belongs to a dispatch that is not the current one. Drop it: another one counts.
    StaleTask => ("STALE_TASK", FailedPrecondition, 409, retryable: false, "the task is not this worker's any more"),
    /// A decision whose commands are malformed. The workflow task fails and is tried again.
    BadDecision => ("BAD_DECISION", InvalidArgument, 400, retryable: false, "the decision is malformed"),
    /// The process that was asked does not own the shard. Ask the owner (metadata `owner_address` where known).
    ShardNotOwned => ("SHARD_NOT_OWNED", FailedPrecondition, 503, retryable: true, "the shard is owned by another process"),
    /// Nobody could answer just now. Repeat the call with the same request id.
    Unavailable => ("UNAVAILABLE", Unavailable, 503, retryable: true, "the service is unavailable"),
    /// The caller's time ran out; a mutating call may or may not have happened. Repeat it with the same request id.
    DeadlineExceeded => ("DEADLINE_EXCEEDED", DeadlineExceeded, 504, retryable: false, "the deadline passed"),
    /// The caller went away.
    Cancelled => ("CANCELLED", Cancelled, 499, retryable: false, "the call was cancelled"),
    /// A bound of the run was reached (metadata `limit`, `found`, `allowed`).
    LimitReached => ("LIMIT_REACHED", ResourceExhausted, 429, retryable: false, "a limit was reached"),
    /// The process has too much to do just now. Repeat the call after the given time.
    Overloaded => ("OVERLOADED", ResourceExhausted, 429, retryable: true, "the service is overloaded"),
    /// The workflow has no query of this name.
    UnknownQuery => ("UNKNOWN_QUERY", NotFound, 404, retryable: false, "the workflow has no such query"),
    /// The query's handler returned an error.
    QueryFailed => ("QUERY_FAILED", Aborted, 422, retryable: false, "the query failed"),
    /// The query's handler panicked.
    QueryPanicked => ("QUERY_PANICKED", Aborted, 503, retryable: false, "the query's handler panicked"),
    /// No worker answered the query in time.
    QueryTimeout => ("QUERY_TIMEOUT", DeadlineExceeded, 408, retryable: false, "no worker answered the query in time"),
    /// The workers' code does not match the run's history, so that it cannot be asked.
    CodeMismatch => ("CODE_MISMATCH", FailedPrecondition, 410, retryable: false, "the workers' code does not match the run's history"),
    /// No credential, or one that is not known.
    Unauthenticated => ("UNAUTHENTICATED", Unauthenticated, 401, retryable: false, "a credential is required"),
    /// The credential does not allow this.
    PermissionDenied => ("PERMISSION_DENIED", PermissionDenied, 403, retryable: false, "the credential does not allow this"),
    /// Somebody else changed the same thing at the same time. Read it again, then decide.
    Conflict => ("CONFLICT", Aborted, 409, retryable: false, "somebody else changed the same thing at the same time"),
    /// Stored data does not decode.
    DataLoss => ("DATA_LOSS", DataLoss, 500, retryable: false, "stored data does not decode"),
    /// A fault of the server. Its log says more.
    Internal => ("INTERNAL", Internal, 500, retryable: false, "internal error"),
}

impl Reason {
    /// Reads [`Reason::as_str`] back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
    }

    /// The nearest reason for a status that carries none: one made by the transport, a proxy or another server.
    pub fn of_foreign_code(code: Code) -> Self {
        match code {
            Code::InvalidArgument | Code::OutOfRange => Self::InvalidArgument,
            Code::NotFound => Self::WorkflowNotFound,
            Code::AlreadyExists => Self::AlreadyRunning,
            Code::PermissionDenied => Self::PermissionDenied,
            Code::Unauthenticated => Self::Unauthenticated,
            Code::ResourceExhausted => Self::Overloaded,
            Code::FailedPrecondition | Code::Aborted => Self::Conflict,
            Code::Unimplemented => Self::UnknownRoute,
            Code::DeadlineExceeded => Self::DeadlineExceeded,
            Code::Cancelled => Self::Cancelled,
            Code::DataLoss => Self::DataLoss,
            Code::Internal | Code::Ok => Self::Internal,
            // Servers of ours never answer Unknown: it is the transport that broke.
            Code::Unavailable | Code::Unknown => Self::Unavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_reads_back_and_has_an_error_status() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(*reason));
            assert!((400..600).contains(&reason.http_status()), "{reason:?}");
            assert_ne!(reason.code(), Code::Ok);
        }
    }
}
