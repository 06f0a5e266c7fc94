//! Routes of operators.

use super::body::Fields;
use super::fail::{self, Failed};
use super::paths;
use super::query::Parameters;
use super::show;
use crate::api;
use crate::api::patch_fleet_limits::LONGEST_WAIT;
use crate::edge::Edge;
use crate::json::{ChangedLimitsJson, LimitsJson, ShardJson, WorkerJson};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use harvest_proto::v1;
use harvest_rpc::Error;
use serde_json::json;
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
    Ok(show::json(StatusCode::OK, &LimitsJson::from(reply)))
}

pub(super) async fn change_limits(State(edge): Shared, headers: HeaderMap, mut fields: Fields) -> Answer {
    let (inner, outer) = TIMEOUT_CEILING;
    let timeout = fields.seconds_or_null(outer)?;
    let request = v1::PatchFleetLimitsRequest {
        // Absent = unchanged, null = removed.
        update_mask: timeout.iter().map(|_| inner.to_owned()).collect(),
        limits: Some(v1::FleetLimits { max_workflow_execution_timeout_ms: timeout.flatten() }),
        wait_ms: fields.wait("wait_secs", LONGEST_WAIT)?,
        actor: paths::actor(&headers)?,
        reason: fields.text("reason")?,
    };
    fields.finish()?;
    if timeout.is_none() {
        return Err(Error::invalid(outer, format!("nothing is to be changed; allowed is {outer}, a number of seconds or null")).into());
    }
    let reply = api::patch_fleet_limits::patch_fleet_limits(&edge, request, edge.deadline()).await;
    let reply = reply.map_err(|error| fail::renamed(error, &[TIMEOUT_CEILING]))?;
    Ok(show::json(StatusCode::OK, &ChangedLimitsJson::from(reply)))
}
