//! JSON answers.

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

/// Which run an answer speaks of.
const EXECUTION_ID: &str = "x-harvest-execution-id";

/// A JSON answer.
pub(super) fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    (status, axum::Json(body)).into_response()
}

/// A JSON answer that speaks of one run.
pub(super) fn of_run<T: Serialize>(status: StatusCode, execution_id: &str, body: &T) -> Response {
    let mut response = json(status, body);
    if let Ok(value) = HeaderValue::from_str(execution_id) {
        response.headers_mut().insert(EXECUTION_ID, value);
    }
    response
}
