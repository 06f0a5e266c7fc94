//! After a takeover all frontends are asked what their workers are running.

use futures::future::join_all;
use harvest_ids::{Epoch, ShardId};
use harvest_persistence::control::{Member, ServiceKind};
use harvest_proto::internal::v1::ReannounceCall;
use harvest_proto::internal::v1::frontend_service_client::FrontendServiceClient;
use harvest_rpc::Error;
use harvest_rpc::client::Channels;
use harvest_runtime::Clock;
use harvest_shards::Directory;
use std::collections::BTreeSet;
use std::time::Duration;

/// Before frontends that did not answer, or that were not known, are asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The frontends of the fleet, as one owner sees them.
pub(super) struct Frontends<'a> {
    pub(super) me: &'a Member,
    pub(super) directory: &'a Directory,
    pub(super) channels: &'a Channels,
    pub(super) clock: &'a dyn Clock,
}

impl Frontends<'_> {
    /// Returns when every live frontend has announced the attempts of the shard that its workers run. One that fails is asked again until it
    /// has left the fleet. Without any frontend it never returns: workers will announce when they have found one.
    pub(super) async fn ask(&self, shard_id: ShardId, epoch: Epoch, within: Duration) {
        let call =
            ReannounceCall { shard_id: shard_id.0, epoch: epoch.0, owner_address: self.me.address.clone(), owner_process_id: self.me.process_id.clone() };
        let began = self.clock.monotonic();
        let mut answered: BTreeSet<String> = BTreeSet::new();
        loop {
            let frontends = self.directory.members(ServiceKind::Frontend);
            let silent: Vec<&Member> = frontends.iter().filter(|frontend| !answered.contains(&frontend.process_id)).collect();
            if silent.is_empty() && !frontends.is_empty() {
                tracing::debug!(%shard_id, frontends = frontends.len(), took = ?self.clock.monotonic().saturating_sub(began), "all frontends have announced");
                return;
            }
            let answers = join_all(silent.iter().map(|frontend| self.ask_one(frontend, call.clone(), within))).await;
            for (frontend, answer) in silent.iter().zip(&answers) {
                match answer {
                    Ok(()) => _ = answered.insert(frontend.process_id.clone()),
                    Err(error) => tracing::debug!(%shard_id, frontend = frontend.process_id, %error, "a frontend did not announce what its workers run"),
                }
            }
            if answers.is_empty() || answers.iter().any(Result::is_err) {
                self.clock.sleep(ASK_AGAIN).await;
            }
        }
    }

    async fn ask_one(&self, frontend: &Member, call: ReannounceCall, within: Duration) -> Result<(), Error> {
        let mut client = FrontendServiceClient::new(self.channels.get(&frontend.address)?);
        let mut call = tonic::Request::new(call);
        call.set_timeout(within);
        client.reannounce(call).await?;
        Ok(())
    }
}
