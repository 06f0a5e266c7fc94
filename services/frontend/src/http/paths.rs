//! What a path and the headers say: which run, which tenant, which request.

use super::fail::Failed;
use crate::edge::Edge;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use harvest_proto::v1;
use harvest_rpc::Error;
use std::sync::Arc;

/// Which tenant.
const NAMESPACE: &str = "x-harvest-namespace";
/// Which request: repeating it repeats the answer.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Who asks, for the audit.
const ACTOR: &str = "x-harvest-actor";

/// The named parts of a path.
pub(super) struct PathParts(Vec<(String, String)>);

impl PathParts {
    /// One part; empty when the route has none of this name.
    pub(super) fn take(&mut self, name: &str) -> String {
        let index = self.0.iter().position(|(found, _)| found == name);
        index.map(|index| self.0.swap_remove(index).1).unwrap_or_default()
    }
}

impl FromRequestParts<Arc<Edge>> for PathParts {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Edge>) -> Result<Self, Failed> {
        let found = RawPathParams::from_request_parts(parts, state).await;
        let found = found.map_err(|error| Failed(Error::invalid("path", format!("the path is not valid UTF-8: {error}"))))?;
        Ok(Self(found.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }
}

/// A header's text; empty when absent. Given twice, or not text, it is refused.
fn header(headers: &HeaderMap, name: &'static str) -> Result<String, Error> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(String::new()) };
    if values.next().is_some() {
        return Err(Error::invalid(name, format!("header {name} is given twice")));
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Error::invalid(name, format!("header {name} is not valid UTF-8")))?;
    if text.is_empty() {
        return Err(Error::invalid(name, format!("header {name} must not be empty; leave it out instead")));
    }
    Ok(text.to_owned())
}

/// The tenant; empty means the default one.
pub(super) fn namespace(headers: &HeaderMap) -> Result<String, Error> {
    header(headers, NAMESPACE)
}

/// Who asks; empty when nobody says so.
pub(super) fn actor(headers: &HeaderMap) -> Result<String, Error> {
    header(headers, ACTOR)
}

/// The request id: the header beats the body.
pub(super) fn request_id(headers: &HeaderMap, of_body: String) -> Result<String, Error> {
    let of_header = header(headers, IDEMPOTENCY_KEY)?;
    Ok(if of_header.is_empty() { of_body } else { of_header })
}

/// The run that a path names, by its execution id or by its business key.
pub(super) fn workflow(headers: &HeaderMap, parts: &mut PathParts) -> Result<v1::WorkflowRef, Error> {
    let namespace = namespace(headers)?;
    Ok(v1::WorkflowRef { namespace, execution_id: parts.take("id"), workflow_type: parts.take("type"), workflow_id: parts.take("workflow_id") })
}
