//! The next owner of a shard is told that the lease is its own, so that nobody waits for its next renewal.

use harvest_ids::ShardId;
use harvest_persistence::control::Member;
use harvest_proto::internal::v1::HandOverCall;
use harvest_proto::internal::v1::history_service_client::HistoryServiceClient;
use harvest_rpc::Error;
use harvest_rpc::client::Channels;
use std::time::Duration;

/// How long the call may take: by then the successor has found the shard by itself.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Tells it, and returns when it has opened the shard. A failure is only logged: the successor finds the lease anyway, a little later.
pub(super) async fn hand_over(channels: &Channels, shard_id: ShardId, successor: &Member) {
    let told: Result<(), Error> = async {
        let mut call = tonic::Request::new(HandOverCall { shard_id: shard_id.0 });
        call.set_timeout(TIMEOUT);
        HistoryServiceClient::new(channels.get(&successor.address)?).hand_over(call).await?;
        Ok(())
    }
    .await;
    if let Err(error) = told {
        tracing::debug!(%shard_id, successor = successor.process_id, %error, "the successor did not answer; it finds the shard at its next renewal");
    }
}
