//! Routes of operators.

use super::body::Fields;
use super::fail::Failed;
use super::paths;
use super::query::Parameters;
use super::show::{self, ShardJson, WorkerJson};
use crate::api;
use crate::edge::Edge;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use harvest_proto::v1;
use serde_json::{Value, json};
use std::sync::Arc;

type Answer = Result<Response, Failed>;
type Shared = State<Arc<Edge>>;

/// The only limit so far, as a field of the protocol and of the body.
const TIMEOUT_CEILING: (&str, &str) = ("max_workflow_execution_timeout_ms", "max_workflow_execution_timeout_secs");

pub(super) async fn workers(State(edge): Shared, headers: HeaderMap, uri: Uri) -> Answer {
    Parameters::read(&uri)?.finish()?;
    let request = v1::ListWorkersRequest { namespace: paths::namespace(&headers)? };
    let reply = api::list_workers::list_workers(&edge, request, edge.deadline()).await?;
    let workers: Vec<WorkerJson> = reply.workers.into_iter().map(WorkerJson::from).collect();
    Ok(show::json(StatusCode::OK, &json!({ "workers": workers })))
}

pub(super) async fn shards(State(edge): Shared, uri: Uri) -> Answer {
    Parameters::read(&uri)?.finish()?;
    let reply = api::list_shards::list_shards(&edge, v1::ListShardsRequest {}, edge.deadline()).await?;
    let shards: Vec<ShardJson> = reply.shards.into_iter().map(ShardJson::from).collect();
    Ok(show::json(StatusCode::OK, &json!({ "shards": shards })))
}

pub(super) async fn limits(State(edge): Shared, uri: Uri) -> Answer {
    Parameters::read(&uri)?.finish()?;
    let reply = api::get_fleet_limits::get_fleet_limits(&edge, v1::GetFleetLimitsRequest {}, edge.deadline()).await?;
    Ok(show::json(StatusCode::OK, &json!({ "limits": limits_json(reply.limits), "version": version_json(reply.version) })))
}

pub(super) async fn change_limits(State(edge): Shared, headers: HeaderMap, body: Body) -> Answer {
    let mut fields = Fields::read(&edge, &headers, body).await?;
    let (inner, outer) = TIMEOUT_CEILING;
    let timeout = fields.seconds_or_null(outer)?;
    let request = v1::PatchFleetLimitsRequest {
        // Absent = unchanged, null = removed.
        update_mask: timeout.iter().map(|_| inner.to_owned()).collect(),
        limits: Some(v1::FleetLimits { max_workflow_execution_timeout_ms: timeout.flatten() }),
        wait_ms: fields.seconds("wait_secs")?,
        actor: paths::actor(&headers)?,
        reason: fields.text("reason")?,
    };
    fields.finish()?;
    let reply = api::patch_fleet_limits::patch_fleet_limits(&edge, request, edge.deadline()).await.map_err(|mut error| {
        if error.field.as_deref().is_some_and(|field| field.ends_with(inner)) {
            error.field = Some(outer.to_owned());
        }
        error
    })?;
    let body = json!({
        "limits": limits_json(reply.limits),
        "version": version_json(reply.version),
        "acknowledged": reply.acknowledged,
        "pending": reply.pending,
    });
    Ok(show::json(StatusCode::OK, &body))
}

fn limits_json(limits: Option<v1::FleetLimits>) -> Value {
    let millis = limits.and_then(|limits| limits.max_workflow_execution_timeout_ms);
    let seconds = millis.map(|millis| if millis % 1_000 == 0 { json!(millis / 1_000) } else { json!(std::time::Duration::from_millis(millis).as_secs_f64()) });
    json!({ TIMEOUT_CEILING.1: seconds })
}

fn version_json(version: Option<v1::ConfigVersion>) -> Value {
    let version = version.unwrap_or_default();
    json!({ "generation": version.generation, "number": version.number })
}
