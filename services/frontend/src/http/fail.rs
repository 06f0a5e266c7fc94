//! Refusals as HTTP answers.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use harvest_rpc::Error;
use serde_json::{Map, Value};

/// A refused call.
pub(super) struct Failed(pub(super) Error);

/// What the protocol names otherwise than the HTTP API does.
const NAMES: [(&str, &str); 7] = [
    ("workflow_type", "workflow_name"),
    ("task_queue", "queue"),
    ("execution_timeout_ms", "execution_timeout_secs"),
    ("workflow_task_timeout_ms", "workflow_task_timeout_secs"),
    ("page_token", "cursor"),
    ("signal_name", "signal"),
    ("query_name", "query"),
];

/// A refusal with the caller's own name of the field: one of `here`, the names of this route, or of those of all routes. A run is named by
/// the path, not by a field `workflow`.
pub(super) fn renamed(mut error: Error, here: &[(&str, &str)]) -> Error {
    let Some(field) = error.field.take() else { return error };
    let inner = field.strip_prefix("workflow.").unwrap_or(&field);
    let outer = here.iter().chain(&NAMES).find(|(name, _)| *name == inner).map_or(inner, |(_, outer)| outer);
    if outer != field {
        error.message = error.message.replace(&field, outer);
    }
    error.field = Some(outer.to_owned());
    error
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let Error { reason, message, field, metadata, retry_after } = self.0;
        let mut body: Map<String, Value> = metadata.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
        body.insert("error".to_owned(), Value::String(message));
        body.insert("reason".to_owned(), Value::String(reason.as_str().to_owned()));
        if let Some(field) = field {
            body.insert("field".to_owned(), Value::String(field));
        }
        let status = StatusCode::from_u16(reason.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(Value::Object(body))).into_response();
        if let Some(pause) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(pause.as_millis().div_ceil(1_000).max(1).try_into().unwrap_or(u64::MAX)));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_field_as_the_caller_does() {
        let named = |field: &str, here: &[(&str, &str)]| {
            let error = renamed(Error::invalid(field, format!("{field} is bad")), here);
            (error.field.unwrap(), error.message)
        };
        let said = |name: &str| (name.to_owned(), format!("{name} is bad"));
        assert_eq!(named("page_token", &[]), said("cursor"));
        assert_eq!(named("workflow.workflow_type", &[]), said("workflow_name"));
        assert_eq!(named("workflow.execution_id", &[]), said("execution_id"));
        assert_eq!(named("timeout_ms", &[("timeout_ms", "timeout_secs")]), said("timeout_secs"));
        assert_eq!(named("input", &[]), said("input"));
    }
}
