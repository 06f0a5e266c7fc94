//! The fleet limits in force are read.

use crate::edge::Edge;
use harvest_proto::internal::v1::GetSnapshotCall;
use harvest_proto::v1::{GetFleetLimitsRequest, GetFleetLimitsResponse};
use harvest_rpc::Error;
use tokio::time::Instant;

pub(crate) async fn get_fleet_limits(edge: &Edge, GetFleetLimitsRequest {}: GetFleetLimitsRequest, deadline: Instant) -> Result<GetFleetLimitsResponse, Error> {
    let snapshot = edge.configs.call(deadline, GetSnapshotCall {}, |mut client, call| async move { client.get_snapshot(call).await }).await?;
    Ok(GetFleetLimitsResponse { limits: snapshot.limits, version: snapshot.version })
}
