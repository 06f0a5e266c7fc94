//! An attempt of an activity has ended.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_proto::internal::v1::CloseActivityCall;
use harvest_proto::v1::{CloseActivityRequest, CloseActivityResponse};
use harvest_rpc::Error;
use harvest_wire::worker;
use tokio::time::Instant;

pub(crate) async fn close_activity(edge: &Edge, request: CloseActivityRequest, deadline: Instant) -> Result<CloseActivityResponse, Error> {
    let (token, ..) = worker::close_activity(request.clone()).map_err(malformed)?;
    let make = |shard_id| CloseActivityCall { shard_id, request: Some(request.clone()) };
    edge.router.call(token.execution_id.slot(), deadline, make, |mut client, call| async move { client.close_activity(call).await }).await
}
