//! Owners tell config by which version their shards decide. Only the newest of each shard matters; it is told until it is heard.

use harvest_fleet_config::{ConfigSource, ShardVersion, Version};
use harvest_ids::{Epoch, ShardId};
use harvest_runtime::Clock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Between two tries to reach config.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// What has not been told yet.
#[derive(Clone, Default)]
pub(super) struct Acknowledgements {
    newest: Arc<Mutex<BTreeMap<ShardId, ShardVersion>>>,
    added: Arc<Notify>,
}

impl Acknowledgements {
    pub(super) fn start(process_id: String, source: Arc<dyn ConfigSource>, clock: Arc<dyn Clock>, shutdown: CancellationToken) -> Self {
        let this = Self::default();
        let telling = this.clone();
        drop(harvest_runtime::spawn("acknowledgements", async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = telling.tell(&process_id, source.as_ref(), clock.as_ref()) => {}
            }
        }));
        this
    }

    pub(super) fn add(&self, shard_id: ShardId, epoch: Epoch, version: (u64, u64)) {
        self.newest().insert(shard_id, ShardVersion { shard_id, epoch, version: Version::from_pair(version) });
        self.added.notify_one();
    }

    fn newest(&self) -> MutexGuard<'_, BTreeMap<ShardId, ShardVersion>> {
        self.newest.lock().expect("no code panics while it holds this lock")
    }

    async fn tell(&self, process_id: &str, source: &dyn ConfigSource, clock: &dyn Clock) {
        loop {
            let told: Vec<ShardVersion> = self.newest().values().copied().collect();
            if told.is_empty() {
                self.added.notified().await;
                continue;
            }
            match source.acknowledge(process_id, &told).await {
                Ok(()) => self.newest().retain(|_, latest| !told.contains(latest)),
                Err(error) => {
                    tracing::debug!(%error, "acknowledgements are told again");
                    clock.sleep(TRY_AGAIN).await;
                }
            }
        }
    }
}
