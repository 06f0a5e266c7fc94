//! The shards of this process: opened and closed as the lease keeper says, found by those that call.

use crate::fleet::Fleet;
use crate::shard::ShardHandle;
use crate::shard::actor::{ShardDeps, Stopper, open_when};
use crate::shard::operation::Refusal;
use async_trait::async_trait;
use harvest_fleet_config::ConfigHandle;
use harvest_ids::ShardId;
use harvest_persistence::control::Member;
use harvest_runtime::metrics;
use harvest_shards::{HostError, ShardHost};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long a takeover waits for the newest configuration. It goes on without: what the shard then acknowledges is what it has.
const CONFIG_TIMEOUT: Duration = Duration::from_millis(500);

/// The open shards.
pub struct Host {
    deps: ShardDeps,
    config: ConfigHandle,
    fleet: Arc<Fleet>,
    open: Mutex<BTreeMap<ShardId, (ShardHandle, Option<Stopper>)>>,
}

impl Host {
    /// No shard yet.
    pub fn new(deps: ShardDeps, config: ConfigHandle, fleet: Arc<Fleet>) -> Self {
        Self { deps, config, fleet, open: Mutex::default() }
    }

    fn shards(&self) -> MutexGuard<'_, BTreeMap<ShardId, (ShardHandle, Option<Stopper>)>> {
        self.open.lock().expect("no code panics while it holds this lock")
    }

    /// The way into a shard of this process.
    ///
    /// # Errors
    /// [`Refusal::NotOwner`] when the shard is not open here.
    pub fn shard(&self, shard_id: ShardId) -> Result<ShardHandle, Refusal> {
        match self.shards().get(&shard_id) {
            Some((handle, _)) if !handle.is_stopped() => Ok(handle.clone()),
            Some(_) | None => Err(Refusal::NotOwner),
        }
    }

    fn counted(&self) {
        let count = self.shards().len();
        self.fleet.set_shards(count);
        metrics::SHARD_OWNED.set_count(u64::try_from(count).unwrap_or(u64::MAX), []);
    }
}

#[async_trait]
impl ShardHost for Host {
    async fn open(&self, shard_id: ShardId) -> Result<(), HostError> {
        if self.shard(shard_id).is_ok() {
            return Ok(());
        }
        let newest = async {
            tokio::select! {
                refreshed = self.config.refresh() => if let Err(error) = refreshed {
                    tracing::debug!(shard = shard_id.0, %error, "taking over without the newest configuration");
                },
                () = self.deps.clock.sleep(CONFIG_TIMEOUT) => {}
            }
        };
        let (handle, stopper) = open_when(shard_id, self.deps.clone(), newest).await.map_err(|error| HostError(error.to_string()))?;
        self.shards().insert(shard_id, (handle, Some(stopper)));
        self.counted();
        Ok(())
    }

    async fn close(&self, shard_id: ShardId) {
        let closing = self.shards().get_mut(&shard_id).map(|(handle, stopper)| (handle.clone(), stopper.take()));
        let Some((mut handle, stopper)) = closing else { return };
        if let Some(stopper) = stopper {
            stopper.stop();
        }
        handle.stopped().await;
        self.shards().remove(&shard_id);
        self.counted();
    }

    async fn hand_over(&self, shard_id: ShardId, successor: &Member) {
        self.fleet.hand_over(shard_id, successor).await;
    }

    fn owned(&self) -> Vec<ShardId> {
        self.shards().iter().filter(|(_, (handle, _))| !handle.is_stopped()).map(|(shard_id, _)| *shard_id).collect()
    }
}
