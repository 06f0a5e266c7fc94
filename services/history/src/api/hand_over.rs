//! An owner says that it has given this process a shard's lease.

use super::Api;
use harvest_ids::ShardId;
use harvest_proto::internal::v1::{HandOverCall, HandOverReply};
use harvest_rpc::Error;

pub(super) async fn hand_over(api: &Api, call: HandOverCall) -> Result<HandOverReply, Error> {
    api.handed.take(ShardId(call.shard_id)).await;
    Ok(HandOverReply {})
}
