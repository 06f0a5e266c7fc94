//! Refusals as HTTP answers.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use harvest_rpc::Error;
use serde_json::{Map, Value};

/// A refused call.
pub(super) struct Failed(pub(super) Error);

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
