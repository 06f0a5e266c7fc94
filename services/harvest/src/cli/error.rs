//! Why a command failed, and its exit code.

use super::output::Output;
use harvest_rpc::Reason;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// An argument or its content is malformed.
    #[error("{0}")]
    Usage(String),
    /// The fleet refused the call.
    #[error("{0}")]
    Refused(#[from] harvest_rpc::Error),
    /// The workflow has ended otherwise than with a result, or has not ended yet.
    #[error("the workflow did not complete successfully: {state}{}", .message.as_ref().map(|message| format!(": {message}")).unwrap_or_default())]
    Unsuccessful {
        /// Its state.
        state: String,
        /// Its failure.
        message: Option<String>,
    },
    /// Anything else.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl CliError {
    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Refused(error) => match error.reason {
                Reason::InvalidArgument | Reason::PayloadTooLarge | Reason::UnsupportedMediaType => 2,
                Reason::WorkflowNotFound | Reason::UnknownWorkflowType | Reason::UnknownQuery | Reason::UnknownRoute => 3,
                _ => 1,
            },
            Self::Unsuccessful { .. } => 4,
            Self::Other(_) => 1,
        }
    }

    /// Says on stderr what is wrong.
    pub fn report(&self, output: Output) {
        match (output, self) {
            (Output::Json, Self::Refused(error)) => {
                eprintln!("{}", serde_json::json!({ "error": error.message, "reason": error.reason.as_str(), "field": error.field }));
            }
            (Output::Json, error) => eprintln!("{}", serde_json::json!({ "error": error.to_string() })),
            (Output::Table, error) => eprintln!("error: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_kinds_of_failures_apart() {
        let code = |reason| CliError::from(harvest_rpc::Error::new(reason, "x")).exit_code();
        assert_eq!([code(Reason::Unavailable), code(Reason::InvalidArgument), code(Reason::WorkflowNotFound)], [1, 2, 3]);
        assert_eq!(CliError::Usage(String::new()).exit_code(), 2);
        let failed = CliError::Unsuccessful { state: "FAILED".into(), message: Some("declined".into()) };
        assert_eq!((failed.exit_code(), failed.to_string().as_str()), (4, "the workflow did not complete successfully: FAILED: declined"));
    }
}
