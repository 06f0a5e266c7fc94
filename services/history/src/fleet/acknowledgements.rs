//! Owners tell config by which version their shards decide. Only the newest of each shard matters; it is told until it is heard.

use harvest_ids::{Epoch, ShardId};
use harvest_persistence::control::{Member, ServiceKind};
use harvest_proto::internal::v1::config_service_client::ConfigServiceClient;
use harvest_proto::internal::v1::{AcknowledgeCall, ShardAcknowledgement};
use harvest_proto::v1::ConfigVersion;
use harvest_rpc::Error;
use harvest_rpc::client::Channels;
use harvest_runtime::Clock;
use harvest_shards::Directory;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Between two tries to reach config.
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// How long one call may take.
const TIMEOUT: Duration = Duration::from_secs(2);

type Newest = BTreeMap<ShardId, (Epoch, (u64, u64))>;

pub(super) struct Acknowledgements {
    newest: Arc<Mutex<Newest>>,
    added: Arc<Notify>,
}

impl Acknowledgements {
    pub(super) fn start(me: Member, directory: Directory, channels: Arc<Channels>, clock: Arc<dyn Clock>, shutdown: CancellationToken) -> Self {
        let this = Self { newest: Arc::default(), added: Arc::default() };
        let (newest, added) = (this.newest.clone(), this.added.clone());
        drop(harvest_runtime::spawn("acknowledgements", async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = run(&me, &newest, &added, &directory, &channels, &clock) => {}
            }
        }));
        this
    }

    pub(super) fn add(&self, shard_id: ShardId, epoch: Epoch, version: (u64, u64)) {
        self.newest.lock().expect("no code panics while it holds this lock").insert(shard_id, (epoch, version));
        self.added.notify_one();
    }
}

async fn run(me: &Member, newest: &Mutex<Newest>, added: &Notify, directory: &Directory, channels: &Channels, clock: &Arc<dyn Clock>) {
    loop {
        added.notified().await;
        loop {
            let told = newest.lock().expect("no code panics while it holds this lock").clone();
            if told.is_empty() {
                break;
            }
            match tell(me, &told, directory, channels).await {
                Ok(()) => {
                    let mut newest = newest.lock().expect("no code panics while it holds this lock");
                    newest.retain(|shard_id, latest| told.get(shard_id) != Some(latest));
                }
                Err(error) => {
                    tracing::debug!(%error, "acknowledgements are told again");
                    clock.sleep(TRY_AGAIN).await;
                }
            }
        }
    }
}

async fn tell(me: &Member, newest: &Newest, directory: &Directory, channels: &Channels) -> Result<(), Error> {
    let config = directory.place(ServiceKind::Config, &me.process_id).ok_or_else(|| Error::unavailable("no config process is known"))?;
    let shards = newest.iter().map(|(shard_id, (epoch, (generation, number)))| ShardAcknowledgement {
        shard_id: shard_id.0,
        epoch: epoch.0,
        version: Some(ConfigVersion { generation: *generation, number: *number }),
    });
    let call = AcknowledgeCall { service: ServiceKind::History.as_str().to_owned(), process_id: me.process_id.clone(), shards: shards.collect() };
    let mut request = tonic::Request::new(call);
    request.set_timeout(TIMEOUT);
    let mut client = ConfigServiceClient::new(channels.get(&config.address)?);
    if let Err(status) = client.acknowledge(request).await {
        directory.suspect(&config.process_id);
        return Err(status.into());
    }
    Ok(())
}
