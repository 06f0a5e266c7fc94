//! `Acknowledge`: owners say which version their shards decide by.

use crate::hub::{Hub, unavailable};
use harvest_ids::{Epoch, ShardId};
use harvest_persistence::control::Acknowledgement;
use harvest_proto::internal::v1::{AcknowledgeCall, AcknowledgeReply};
use harvest_rpc::Error;

/// Most shards of one call: as many as there are slots.
const MAX_SHARDS: usize = 4_096;

pub(super) async fn acknowledge(hub: &Hub, call: AcknowledgeCall) -> Result<AcknowledgeReply, Error> {
    if call.shards.len() > MAX_SHARDS {
        return Err(Error::invalid("shards", format_args!("shards has {} entries; allowed are {MAX_SHARDS}", call.shards.len())));
    }
    let mut acknowledgements = Vec::with_capacity(call.shards.len());
    for shard in call.shards {
        let version = shard.version.ok_or_else(|| Error::invalid("shards.version", "version must be set"))?;
        let version = (version.generation, version.number);
        acknowledgements.push(Acknowledgement { shard_id: ShardId(shard.shard_id), epoch: Epoch(shard.epoch), version });
    }
    if !acknowledgements.is_empty() {
        hub.store.acknowledge(&acknowledgements).await.map_err(|error| unavailable(&error))?;
        hub.acknowledged.notify_waiters();
    }
    Ok(AcknowledgeReply {})
}
