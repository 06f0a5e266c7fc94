//! Messages are delivered to the owner of their target's shard.

use harvest_ids::ShardId;
use harvest_persistence::batch::OutboxRow;
use harvest_proto::internal::v1 as internal;
use harvest_proto::internal::v1::history_service_client::HistoryServiceClient;
use harvest_rpc::Error;
use harvest_rpc::client::Channels;
use harvest_shards::Directory;
use std::time::Duration;

/// How long one delivery may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// True when all messages are durable at their target. On failure the shard tries again later, with fresh routing.
pub(super) async fn deliver(directory: &Directory, channels: &Channels, target: ShardId, messages: Vec<OutboxRow>) -> bool {
    match try_deliver(directory, channels, target, &messages).await {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(shard = target.0, %error, "messages could not be delivered; they are tried again");
            match error.owner_address() {
                Some(address) => directory.hint(target, address),
                None => {
                    if let Err(error) = directory.refresh_now().await {
                        tracing::debug!(%error, "the directory cannot be refreshed");
                    }
                }
            }
            false
        }
    }
}

async fn try_deliver(directory: &Directory, channels: &Channels, target: ShardId, rows: &[OutboxRow]) -> Result<(), Error> {
    let owner = directory.owner(target).ok_or_else(|| Error::unavailable(format!("shard {target} has no owner now")))?;
    let messages = rows.iter().map(|row| harvest_wire::message::decode(&row.message)).collect::<Result<Vec<_>, _>>();
    let messages = messages.map_err(|error| Error::internal(format!("an outbox row does not decode: {error}")))?;
    let messages = messages.iter().map(harvest_wire::message::to_proto).collect();
    let mut client = HistoryServiceClient::new(channels.get(&owner.address)?);
    let mut call = tonic::Request::new(internal::DeliverMessagesCall { shard_id: target.0, messages });
    call.set_timeout(TIMEOUT);
    client.deliver_messages(call).await?;
    Ok(())
}
