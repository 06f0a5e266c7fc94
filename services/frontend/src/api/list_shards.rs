//! Shards and their owners are listed.

use crate::edge::Edge;
use harvest_proto::v1::{ListShardsRequest, ListShardsResponse, ShardInfo};
use harvest_rpc::Error;
use tokio::time::Instant;

pub(crate) async fn list_shards(edge: &Edge, ListShardsRequest {}: ListShardsRequest, deadline: Instant) -> Result<ListShardsResponse, Error> {
    let directory = edge.router.directory();
    // With the control database down the last view is shown: leases that have run out by now say so.
    match tokio::time::timeout_at(deadline, directory.refresh_now()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "shards are listed as last read"),
        Err(_) => tracing::debug!("shards are listed as last read"),
    }
    let snapshot = directory.snapshot();
    let now = edge.clock.monotonic();
    let shard = |(shard_id, slots)| {
        let lease = snapshot.lease(shard_id);
        let owner = lease.and_then(|view| view.lease.owner.clone()).unwrap_or_default();
        ShardInfo {
            shard_id: shard_id.0,
            slots,
            address: lease.and_then(|view| view.lease.address.clone()).unwrap_or_default(),
            epoch: lease.map_or(0, |view| view.lease.epoch.0),
            lease_remaining_ms: lease.filter(|_| !owner.is_empty()).map_or(0, |view| {
                let millis = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
                if view.lease.remaining_ms < 0 { view.lease.remaining_ms } else { millis(view.expires_at) - millis(now) }
            }),
            owner,
        }
    };
    Ok(ListShardsResponse { shards: snapshot.slot_counts().into_iter().map(shard).collect() })
}
