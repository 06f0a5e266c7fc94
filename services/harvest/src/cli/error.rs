//! Why a command failed, and its exit code.

use super::output::{Output, remark};
use harvest_rpc::Reason;
use serde_json::json;
use std::io::ErrorKind;

/// Fields of the protocol, and the options that set them.
const OPTIONS: [(&str, &str); 18] = [
    ("namespace", "--namespace"),
    ("execution_id", "EXECUTION_ID"),
    ("workflow_type", "TYPE"),
    ("workflow_id", "--id"),
    ("task_queue", "--queue"),
    ("request_id", "--request-id"),
    ("execution_timeout_ms", "--execution-timeout"),
    ("input", "--input"),
    ("payload", "--payload"),
    ("args", "--args"),
    ("signal_name", "--name"),
    ("query_name", "--name"),
    ("wait_ms", "--wait"),
    ("timeout_ms", "--wait"),
    ("page_token", "--cursor"),
    ("from_event_id", "--from"),
    ("max_workflow_execution_timeout_ms", "--max-workflow-execution-timeout"),
    ("max_workflow_chain_timeout_ms", "--max-workflow-chain-timeout"),
];

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// An argument or its content is malformed.
    #[error("{0}")]
    Usage(String),
    /// The fleet refused the call; the field is named as the option is.
    #[error("{0}")]
    Refused(harvest_rpc::Error),
    /// The workflow has ended otherwise than with a result, or has not ended yet.
    #[error("the workflow did not complete successfully: {state}{}", .message.as_ref().map(|message| format!(": {message}")).unwrap_or_default())]
    Unsuccessful {
        /// Its state.
        state: String,
        /// Its failure.
        message: Option<String>,
    },
    /// Standard output took no more. Whoever closed its pipe has read enough, and is told nothing.
    #[error("the result cannot be written: {0}")]
    Output(std::io::Error),
    /// Anything else.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl From<harvest_rpc::Error> for CliError {
    fn from(mut error: harvest_rpc::Error) -> Self {
        let field = error.field.take();
        let inner = field.as_deref().map(|field| field.strip_prefix("workflow.").unwrap_or(field));
        if let (Some(field), Some((_, option))) = (&field, OPTIONS.iter().find(|(name, _)| Some(*name) == inner)) {
            error.message = error.message.replace(&format!("next_{field}"), "cursor").replace(field, option);
            error.field = Some((*option).to_owned());
        } else {
            error.field = field;
        }
        Self::Refused(error)
    }
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
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => 0,
            Self::Output(_) | Self::Other(_) => 1,
        }
    }

    /// Says on stderr what is wrong.
    pub fn report(&self, output: Output) {
        match (output, self) {
            (_, Self::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {}
            (Output::Json, Self::Refused(error)) => {
                remark(json!({ "error": error.message, "reason": error.reason.as_str(), "field": error.field }));
            }
            (Output::Json, error) => remark(json!({ "error": error.to_string() })),
            (Output::Table, error) => remark(format_args!("error: {error}")),
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
        let output = |kind: ErrorKind| CliError::Output(kind.into()).exit_code();
        assert_eq!((output(ErrorKind::BrokenPipe), output(ErrorKind::StorageFull)), (0, 1));
        let failed = CliError::Unsuccessful { state: "FAILED".into(), message: Some("declined".into()) };
        assert_eq!((failed.exit_code(), failed.to_string().as_str()), (4, "the workflow did not complete successfully: FAILED: declined"));
    }

    #[test]
    fn a_refusal_names_the_option_and_not_the_field() {
        let said = |field: &str, text: &str| match CliError::from(harvest_rpc::Error::invalid(field, text)) {
            CliError::Refused(error) => (error.field.unwrap(), error.message),
            other => panic!("{other}"),
        };
        let (field, text) = said("page_token", "page_token does not decode: it is not the next_page_token of an earlier page");
        assert_eq!((field.as_str(), text.as_str()), ("--cursor", "--cursor does not decode: it is not the cursor of an earlier page"));
        assert_eq!(said("workflow.workflow_id", "workflow.workflow_id contains U+0000").1, "--id contains U+0000");
        assert_eq!(said("reason", "reason is too long").0, "reason");
    }
}
