//! A successor is told that a shard was released for it, so that nobody waits for its next look at the leases.

use harvest_ids::ShardId;
use harvest_persistence::control::ServiceKind;
use harvest_proto::internal::v1::HandOverCall;
use harvest_proto::internal::v1::history_service_client::HistoryServiceClient;
use harvest_rpc::Error;
use harvest_rpc::client::Channels;
use harvest_shards::Directory;
use std::time::Duration;

/// How long the call may take: by then the successor has read the leases by itself.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Tells the process `successor`. A failure is only logged: the successor reads the leases anyway, a little later.
pub(super) async fn hand_over(directory: &Directory, channels: &Channels, shard_id: ShardId, successor: &str) {
    let members = directory.members(ServiceKind::History);
    let Some(member) = members.iter().find(|member| member.process_id == successor) else { return };
    let told: Result<(), Error> = async {
        let mut call = tonic::Request::new(HandOverCall { shard_id: shard_id.0 });
        call.set_timeout(TIMEOUT);
        HistoryServiceClient::new(channels.get(&member.address)?).hand_over(call).await?;
        Ok(())
    }
    .await;
    if let Err(error) = told {
        tracing::debug!(%shard_id, successor, %error, "the successor was not told; it reads the leases by itself");
    }
}
