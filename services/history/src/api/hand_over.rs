//! An owner says that it has released a shard for this process.

use super::Api;
use harvest_proto::internal::v1::{HandOverCall, HandOverReply};
use harvest_rpc::Error;

pub(super) async fn hand_over(api: &Api, call: HandOverCall) -> Result<HandOverReply, Error> {
    tracing::debug!(shard = call.shard_id, "a shard is handed over to this process");
    // The lease keeper acts on every read.
    api.directory.refresh_now().await.map_err(|error| Error::unavailable(format!("the leases cannot be read: {error}")))?;
    Ok(HandOverReply {})
}
