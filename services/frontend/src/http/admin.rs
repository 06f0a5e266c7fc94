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

/// The limits, as fields of the protocol and of the body.
const LIMITS: [(&str, &str); 2] =
    [("max_workflow_execution_timeout_ms", "max_workflow_execution_timeout_secs"), ("max_workflow_chain_timeout_ms", "max_workflow_chain_timeout_secs")];

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
    // Absent = unchanged, null = removed.
    let [execution, chain] = LIMITS.map(|(_, outer)| fields.seconds_or_null(outer));
    let (execution, chain) = (execution?, chain?);
    let named = LIMITS.into_iter().zip([execution, chain]).filter(|(_, value)| value.is_some());
    let request = v1::PatchFleetLimitsRequest {
        update_mask: named.map(|((inner, _), _)| inner.to_owned()).collect(),
        limits: Some(v1::FleetLimits { max_workflow_execution_timeout_ms: execution.flatten(), max_workflow_chain_timeout_ms: chain.flatten() }),
        wait_ms: fields.wait("wait_secs", LONGEST_WAIT)?,
        actor: paths::actor(&headers)?,
        reason: fields.text("reason")?,
    };
    fields.finish()?;
    if request.update_mask.is_empty() {
        let [(_, execution), (_, chain)] = LIMITS;
        return Err(Error::invalid(execution, format!("nothing is to be changed; allowed are {execution} and {chain}, numbers of seconds or null")).into());
    }
    let reply = api::patch_fleet_limits::patch_fleet_limits(&edge, request, edge.deadline()).await;
    let reply = reply.map_err(|error| fail::renamed(error, &LIMITS))?;
    Ok(show::json(StatusCode::OK, &ChangedLimitsJson::from(reply)))
}
