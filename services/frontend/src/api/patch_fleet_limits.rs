//! Fleet limits are changed.

use crate::edge::Edge;
use harvest_proto::v1::{PatchFleetLimitsRequest, PatchFleetLimitsResponse};
use harvest_rpc::Error;
use std::time::Duration;
use tokio::time::Instant;

/// The longest wait for acknowledgements that the config service allows.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(10);

pub(crate) async fn patch_fleet_limits(edge: &Edge, request: PatchFleetLimitsRequest, deadline: Instant) -> Result<PatchFleetLimitsResponse, Error> {
    // The config service checks the request, and waits itself for the acknowledgements: that comes on top of the time for the call.
    let wait = request.wait_ms.map_or(Duration::from_secs(2), Duration::from_millis).min(LONGEST_WAIT);
    edge.configs.call(deadline + wait, request, |mut client, call| async move { client.patch_fleet_limits(call).await }).await
}
