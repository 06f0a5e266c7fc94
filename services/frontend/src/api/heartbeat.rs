//! A running attempt reports progress.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::HeartbeatCall;
use harvest_proto::v1::{HeartbeatRequest, HeartbeatResponse};
use harvest_rpc::Error;
use harvest_wire::worker;
use tokio::time::Instant;

pub(crate) async fn heartbeat(edge: &Edge, request: HeartbeatRequest, deadline: Instant) -> Result<HeartbeatResponse, Error> {
    let (token, ..) = worker::heartbeat(request.clone()).map_err(malformed)?;
    let make = |shard_id| HeartbeatCall { shard_id, request: Some(request.clone()) };
    edge.router.call(token.execution_id.slot(), deadline, make, |mut client, call| async move { client.heartbeat(call).await }).await
}
