//! Routes of runs.

use super::body::Fields;
use super::fail::{self, Failed};
use super::paths::{self, PathParts};
use super::query::Parameters;
use super::show;
use crate::api;
use crate::edge::Edge;
use crate::json::{self, HistoryJson, ListJson, ResultJson, StartedJson, WorkflowJson};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use harvest_proto::v1;
use harvest_rpc::Error;
use harvest_wire::start::MAX_WAIT;
use harvest_workflow_core::state::Status;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

type Answer = Result<Response, Failed>;
type Shared = State<Arc<Edge>>;

pub(super) async fn start(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, mut fields: Fields) -> Answer {
    let policies = [("use_existing", v1::ConflictPolicy::UseExisting), ("fail", v1::ConflictPolicy::Fail), ("unspecified", v1::ConflictPolicy::Unspecified)];
    let request = v1::StartWorkflowRequest {
        namespace: paths::namespace(&headers)?,
        workflow_type: parts.take("id"),
        workflow_id: fields.id("workflow_id")?,
        input: fields.payload("input"),
        task_queue: fields.id("queue")?,
        request_id: paths::request_id(&headers, fields.id("request_id")?)?,
        execution_timeout_ms: fields.seconds("execution_timeout_secs")?,
        conflict_policy: fields.word("conflict_policy", &policies)?.unwrap_or_default().into(),
        workflow_task_timeout_ms: fields.seconds("workflow_task_timeout_secs")?,
        eager_worker_id: String::new(), // workers speak gRPC
        sla_ms: fields.seconds("sla_secs")?,
    };
    fields.finish()?;
    let reply = api::start_workflow::start_workflow(&edge, request, edge.deadline()).await.map_err(|error| fail::renamed(error, &[]))?;
    let status = if reply.started_fresh { StatusCode::CREATED } else { StatusCode::OK };
    let execution_id = reply.execution_id.clone();
    Ok(show::of_run(status, &execution_id, &StartedJson::from(reply)))
}

pub(super) async fn list(State(edge): Shared, headers: HeaderMap, uri: Uri) -> Answer {
    let mut parameters = Parameters::read(&uri)?;
    let (limit, page_size) = (parameters.page_size("limit")?, parameters.page_size("page_size")?);
    if limit.is_some() && page_size.is_some() {
        return Err(Error::invalid("limit", "limit and page_size are two names of one thing: give one of them").into());
    }
    let size_name = if page_size.is_none() { "limit" } else { "page_size" };
    let request = v1::ListWorkflowsRequest {
        namespace: paths::namespace(&headers)?,
        state: parameters.text("state"),
        workflow_type: parameters.text("workflow_name"),
        workflow_id: parameters.text("workflow_id"),
        page_size: page_size.or(limit).unwrap_or(0),
        page_token: parameters.text("cursor"),
        sla_breached: parameters.truth("sla_breached")?,
    };
    parameters.finish()?;
    let reply = api::list_workflows::list_workflows(&edge, request, edge.deadline()).await;
    let reply = reply.map_err(|error| fail::renamed(error, &[("page_size", size_name)]))?;
    Ok(show::json(StatusCode::OK, &ListJson::from(reply)))
}

pub(super) async fn describe(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, uri: Uri) -> Answer {
    Parameters::read(&uri)?.finish()?;
    let request = v1::GetWorkflowRequest { workflow: Some(paths::workflow(&headers, &mut parts)?) };
    let reply = api::get_workflow::get_workflow(&edge, request, edge.deadline()).await.map_err(|error| fail::renamed(error, &[]))?;
    let info = reply.workflow.ok_or_else(|| Error::internal("the answer has no workflow"))?;
    let body = WorkflowJson::from(info);
    Ok(show::of_run(StatusCode::OK, &body.execution_id, &body))
}

pub(super) async fn history(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, uri: Uri) -> Answer {
    let mut parameters = Parameters::read(&uri)?;
    let request = v1::GetHistoryRequest {
        workflow: Some(paths::workflow(&headers, &mut parts)?),
        from_event_id: parameters.number("from_event_id")?.unwrap_or(0),
        page_size: parameters.page_size("page_size")?.unwrap_or(0),
    };
    parameters.finish()?;
    let reply = api::get_history::get_history(&edge, request, edge.deadline()).await.map_err(|error| fail::renamed(error, &[]))?;
    let body = HistoryJson::try_from(reply)?;
    Ok(show::of_run(StatusCode::OK, &body.execution_id, &body))
}

pub(super) async fn result(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, uri: Uri) -> Answer {
    let mut parameters = Parameters::read(&uri)?;
    let wait = parameters.span("wait")?.unwrap_or_default();
    parameters.finish()?;
    let request = v1::GetResultRequest { workflow: Some(paths::workflow(&headers, &mut parts)?), wait_ms: millis(wait) };
    let reply = api::get_result::get_result(&edge, request, edge.deadline()).await.map_err(|error| fail::renamed(error, &[("wait_ms", "wait")]))?;
    let execution_id = reply.execution_id.clone();
    if reply.state == Status::Running.as_str() {
        let mut response = show::of_run(StatusCode::NO_CONTENT, &execution_id, &());
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(1));
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(header::CONTENT_TYPE);
        return Ok(response.into_response());
    }
    Ok(show::of_run(StatusCode::OK, &execution_id, &ResultJson::from(reply)))
}

pub(super) async fn signal(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, mut fields: Fields) -> Answer {
    let request = v1::SignalWorkflowRequest {
        workflow: Some(paths::workflow(&headers, &mut parts)?),
        signal_name: parts.take("signal"),
        payload: fields.payload("payload"),
        request_id: paths::request_id(&headers, fields.id("request_id")?)?,
    };
    fields.finish()?;
    let reply = api::signal_workflow::signal_workflow(&edge, request, edge.deadline()).await.map_err(|error| fail::renamed(error, &[]))?;
    let body = json!({ "signal_delivered": reply.signal_delivered, "execution_id": reply.execution_id });
    Ok(show::of_run(StatusCode::OK, &reply.execution_id, &body))
}

pub(super) async fn query_get(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, uri: Uri) -> Answer {
    let mut parameters = Parameters::read(&uri)?;
    let timeout = parameters.span("timeout")?.unwrap_or_default();
    parameters.finish()?;
    ask(&edge, &headers, &mut parts, None, millis(timeout)).await
}

pub(super) async fn query_post(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, mut fields: Fields) -> Answer {
    let (args, timeout) = (fields.payload("args"), fields.wait("timeout_secs", MAX_WAIT)?);
    fields.finish()?;
    ask(&edge, &headers, &mut parts, args, timeout.unwrap_or(0)).await
}

async fn ask(edge: &Edge, headers: &HeaderMap, parts: &mut PathParts, args: Option<v1::Payload>, timeout_ms: u64) -> Answer {
    let (workflow, query_name) = (Some(paths::workflow(headers, parts)?), parts.take("query"));
    let request = v1::QueryWorkflowRequest { workflow, query_name, args, timeout_ms };
    let reply = api::query_workflow::query_workflow(edge, request, edge.deadline()).await;
    let reply = reply.map_err(|error| fail::renamed(error, &[("timeout_ms", "timeout")]))?;
    #[derive(serde::Serialize)]
    struct Answered {
        result: Option<Box<serde_json::value::RawValue>>,
    }
    Ok(show::json(StatusCode::OK, &Answered { result: json::payload(reply.result) }))
}

pub(super) async fn cancel(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, mut fields: Fields) -> Answer {
    let (workflow, reason) = (Some(paths::workflow(&headers, &mut parts)?), fields.text("reason")?);
    let request_id = paths::request_id(&headers, fields.id("request_id")?)?;
    fields.finish()?;
    let request = v1::CancelWorkflowRequest { workflow, reason, request_id };
    let reply = api::cancel_workflow::cancel_workflow(&edge, request, edge.deadline()).await.map_err(|error| fail::renamed(error, &[]))?;
    Ok(show::of_run(StatusCode::OK, &reply.execution_id, &json!({ "cancel_requested": true, "execution_id": reply.execution_id })))
}

pub(super) async fn terminate(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, mut fields: Fields) -> Answer {
    let (workflow, reason) = (Some(paths::workflow(&headers, &mut parts)?), fields.text("reason")?);
    let request_id = paths::request_id(&headers, fields.id("request_id")?)?;
    fields.finish()?;
    let request = v1::TerminateWorkflowRequest { workflow, reason, request_id };
    let reply = api::terminate_workflow::terminate_workflow(&edge, request, edge.deadline()).await.map_err(|error| fail::renamed(error, &[]))?;
    Ok(show::of_run(StatusCode::OK, &reply.execution_id, &json!({ "terminated": true, "execution_id": reply.execution_id })))
}

pub(super) async fn pause(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, mut fields: Fields) -> Answer {
    let request = v1::PauseWorkflowRequest {
        workflow: Some(paths::workflow(&headers, &mut parts)?),
        reason: fields.text("reason")?,
        request_id: paths::request_id(&headers, fields.id("request_id")?)?,
        longest_ms: fields.seconds("longest_secs")?,
    };
    fields.finish()?;
    let reply = api::pause_workflow::pause_workflow(&edge, request, edge.deadline()).await;
    let reply = reply.map_err(|error| fail::renamed(error, &[("longest_ms", "longest_secs")]))?;
    Ok(show::of_run(StatusCode::OK, &reply.execution_id, &json!({ "paused": true, "changed": reply.changed, "execution_id": reply.execution_id })))
}

pub(super) async fn resume(State(edge): Shared, headers: HeaderMap, mut parts: PathParts, mut fields: Fields) -> Answer {
    let (workflow, request_id) = (Some(paths::workflow(&headers, &mut parts)?), paths::request_id(&headers, fields.id("request_id")?)?);
    fields.finish()?;
    let request = v1::ResumeWorkflowRequest { workflow, request_id };
    let reply = api::resume_workflow::resume_workflow(&edge, request, edge.deadline()).await.map_err(|error| fail::renamed(error, &[]))?;
    Ok(show::of_run(StatusCode::OK, &reply.execution_id, &json!({ "paused": false, "changed": reply.changed, "execution_id": reply.execution_id })))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
