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
                tracing::info!(%shard_id, frontends = frontends.len(), took = ?self.clock.monotonic().saturating_sub(began), "all frontends have announced");
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

#[cfg(test)]
mod tests {
    use super::*;
    use harvest_persistence::control::DirectoryStore;
    use harvest_persistence::embedded::EmbeddedStore;
    use harvest_proto::internal::v1::ReannounceReply;
    use harvest_proto::internal::v1::frontend_service_server::{FrontendService, FrontendServiceServer};
    use harvest_rpc::server::Server;
    use harvest_runtime::{OwnedTask, SystemClock};
    use harvest_shards::DirectoryOptions;
    use std::sync::{Arc, Mutex};
    use tokio_util::sync::CancellationToken;
    use tonic::{Request, Response, Status};

    /// A frontend that refuses so many calls before it answers.
    #[derive(Clone, Default)]
    struct FakeFrontend {
        refusals: Arc<Mutex<usize>>,
        calls: Arc<Mutex<Vec<ReannounceCall>>>,
    }

    #[tonic::async_trait]
    impl FrontendService for FakeFrontend {
        async fn reannounce(&self, request: Request<ReannounceCall>) -> Result<Response<ReannounceReply>, Status> {
            self.calls.lock().unwrap().push(request.into_inner());
            let mut refusals = self.refusals.lock().unwrap();
            if *refusals > 0 {
                *refusals -= 1;
                return Err(Status::unavailable("not yet"));
            }
            Ok(Response::new(ReannounceReply {}))
        }
    }

    struct Fleet {
        store: Arc<EmbeddedStore>,
        directory: Directory,
        servers: Vec<OwnedTask<()>>,
    }

    impl Fleet {
        async fn new() -> Self {
            let store = EmbeddedStore::in_memory().unwrap();
            store.migrate(1).await.unwrap();
            let store = Arc::new(store);
            let options = DirectoryOptions { member_interval: Duration::from_millis(50), ..DirectoryOptions::default() };
            let directory = Directory::start(store.clone(), Arc::new(SystemClock::new()), options, CancellationToken::new()).await.unwrap();
            Self { store, directory, servers: Vec::new() }
        }

        async fn join(&mut self, name: &str, frontend: &FakeFrontend) {
            let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().add_service(FrontendServiceServer::new(frontend.clone()));
            let address = format!("http://{}", server.address());
            self.servers.push(harvest_runtime::spawn_owned("fake", async move { server.serve(CancellationToken::new()).await.unwrap() }));
            let member = Member { service: ServiceKind::Frontend, process_id: name.into(), address };
            self.store.announce_member(&member, 60_000).await.unwrap();
            self.directory.refresh_now().await.unwrap();
        }

        fn asking(&self) -> OwnedTask<()> {
            let directory = self.directory.clone();
            harvest_runtime::spawn_owned("asking", async move {
                let me = Member { service: ServiceKind::History, process_id: "history-1".into(), address: "http://me".into() };
                let (channels, clock) = (Channels::default(), SystemClock::new());
                let frontends = Frontends { me: &me, directory: &directory, channels: &channels, clock: &clock };
                frontends.ask(ShardId(3), Epoch(9), Duration::from_secs(5)).await;
            })
        }
    }

    async fn soon<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("it comes within 20 s")
    }

    #[tokio::test]
    async fn every_frontend_is_asked_until_it_has_answered() {
        let mut fleet = Fleet::new().await;
        let (quick, slow) = (FakeFrontend::default(), FakeFrontend::default());
        *slow.refusals.lock().unwrap() = 2;
        fleet.join("frontend-1", &quick).await;
        fleet.join("frontend-2", &slow).await;
        soon(fleet.asking()).await.unwrap();
        let asked = ReannounceCall { shard_id: 3, epoch: 9, owner_address: "http://me".into(), owner_process_id: "history-1".into() };
        assert_eq!(*quick.calls.lock().unwrap(), [asked]);
        assert_eq!(slow.calls.lock().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn one_that_leaves_is_waited_for_no_more_and_a_fleet_without_any_is_waited_for() {
        let mut fleet = Fleet::new().await;
        let asking = fleet.asking();
        let (living, dead) = (FakeFrontend::default(), FakeFrontend::default());
        *dead.refusals.lock().unwrap() = usize::MAX;
        fleet.join("frontend-1", &dead).await;
        fleet.join("frontend-2", &living).await;
        soon(async {
            while living.calls.lock().unwrap().is_empty() || dead.calls.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        fleet.store.remove_member("frontend-1").await.unwrap();
        soon(asking).await.unwrap();
        assert_eq!(living.calls.lock().unwrap().len(), 1);
    }
}
