//! Arguments: spans, payloads, names of runs.

use super::error::CliError;
use clap::Args;
use harvest_proto::v1;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

/// The longest file that a payload is read from: more than servers take (`max_payload_bytes`), so that they name their own bound.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// The longest span: 10 years.
const LONGEST_SPAN: Duration = Duration::from_secs(315_360_000);

/// Reads a span such as `10s` or `1h 30m`.
///
/// # Errors
/// A text that says what is allowed.
pub fn span(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|error| format!("{error}; spans such as 250ms, 10s or 1h are allowed"))?;
    if span > LONGEST_SPAN { Err("spans of at most 3650 days are allowed".to_owned()) } else { Ok(span) }
}

/// Reads an id or a name: an empty one was hardly meant, and would be taken for none.
///
/// # Errors
/// A text that says what is allowed.
pub fn name(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it must not be empty; leave it out instead".to_owned()) } else { Ok(text.to_owned()) }
}

/// Milliseconds of a span, rounding a fraction up.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Reads all, if it is not more than any server would take: a pipe or a device may have no end.
fn bounded(source: impl std::io::Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, format!("more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

/// Reads a payload: JSON on the command line, or a file of JSON (`-` is standard input).
///
/// # Errors
/// [`CliError::Usage`] when it is not JSON or the file cannot be read.
pub fn payload(name: &str, text: Option<String>, file: Option<PathBuf>) -> Result<Option<v1::Payload>, CliError> {
    let text = match (text, file) {
        (Some(text), _) => text,
        (None, Some(path)) => {
            let read = if path.as_os_str() == "-" { bounded(std::io::stdin()) } else { std::fs::File::open(&path).and_then(bounded) };
            read.map_err(|error| CliError::Usage(format!("--{name}-file {}: {error}", path.display())))?
        }
        (None, None) => return Ok(None),
    };
    let text = text.trim();
    serde_json::from_str::<serde_json::Value>(text)
        .map_err(|error| CliError::Usage(format!("--{name} must be JSON: {error} (quote strings: --{name} '\"text\"')")))?;
    Ok(Some(v1::Payload { data: text.to_owned().into(), encoding: String::new() }))
}

/// Names a run: by its execution id, or by its type and workflow id.
#[derive(Debug, Args)]
pub struct Run {
    /// The run; or name it by --type and --id.
    #[arg(value_name = "EXECUTION_ID", value_parser = name, required_unless_present_all = ["run_type", "run_id"], conflicts_with_all = ["run_type", "run_id"])]
    execution_id: Option<String>,
    /// The workflow's type.
    #[arg(id = "run_type", long = "type", value_name = "TYPE", value_parser = name, requires = "run_id")]
    workflow_type: Option<String>,
    /// The workflow's business key: its open run, else its newest closed one.
    #[arg(id = "run_id", long = "id", value_name = "WORKFLOW_ID", value_parser = name, requires = "run_type")]
    workflow_id: Option<String>,
}

impl Run {
    /// As the protocol has it.
    pub fn reference(&self, namespace: &str) -> v1::WorkflowRef {
        v1::WorkflowRef {
            namespace: namespace.to_owned(),
            execution_id: self.execution_id.clone().unwrap_or_default(),
            workflow_type: self.workflow_type.clone().unwrap_or_default(),
            workflow_id: self.workflow_id.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        assert!(bounded(std::io::repeat(b' ')).unwrap_err().to_string().contains("8388608"));
        assert_eq!(bounded(&b"{}"[..]).unwrap(), "{}");
    }

    #[test]
    fn a_payload_must_be_json_and_a_span_a_span() {
        assert_eq!(payload("input", Some(" {\"a\": 1}\n".into()), None).unwrap().unwrap().data, "{\"a\": 1}");
        assert!(payload("input", Some("text".into()), None).unwrap_err().to_string().starts_with("--input must be JSON"));
        assert_eq!(payload("input", None, Some("/no/such/file".into())).unwrap_err().exit_code(), 2);
        assert_eq!(span("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(span("584542046y").is_err() && span("3650days").is_ok());
        assert!(span("soon").unwrap_err().contains("spans such as"));
        assert_eq!(millis(Duration::from_micros(1_500)), 2);
    }
}
