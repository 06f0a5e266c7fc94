//! The rest of the fleet as the shards of this process see it: matching, timer scanners, other owners, config.
//!
//! Nothing here waits: what cannot be told now is told again by the shard, or found by a scan.

mod acknowledgements;
mod arming;
mod delivery;
mod hand_over;
mod offers;
mod reannouncement;

use crate::shard::neighbours::{Neighbours, Offer};
use acknowledgements::Acknowledgements;
use arming::Arming;
use async_trait::async_trait;
use harvest_fleet_config::ConfigSource;
use harvest_ids::{Epoch, ExecutionId, ShardId, Timestamp};
use harvest_persistence::batch::OutboxRow;
use harvest_persistence::control::{Member, ServiceKind};
use harvest_rpc::client::Channels;
use harvest_runtime::Clock;
use harvest_shards::Directory;
use offers::Offers;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The neighbours of this process's shards.
pub struct Fleet {
    me: Member,
    directory: Directory,
    channels: Arc<Channels>,
    clock: Arc<dyn Clock>,
    offers: Offers,
    arming: Arming,
    acknowledgements: Acknowledgements,
    /// How many shards share a window of offers.
    shards: AtomicUsize,
    sticky_timeout: Duration,
}

impl Fleet {
    /// Starts the streams and tasks that talk to the others; they end with `shutdown`.
    pub fn start(
        me: Member,
        directory: Directory,
        channels: Arc<Channels>,
        config: Arc<dyn ConfigSource>,
        clock: Arc<dyn Clock>,
        sticky_timeout: Duration,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            offers: Offers::start(me.clone(), directory.clone(), channels.clone(), clock.clone(), shutdown.clone()),
            arming: Arming::start(directory.clone(), channels.clone(), shutdown.clone()),
            acknowledgements: Acknowledgements::start(me.process_id.clone(), config, clock.clone(), shutdown),
            me,
            directory,
            channels,
            clock,
            shards: AtomicUsize::new(1),
            sticky_timeout,
        }
    }

    /// Says how many shards this process owns.
    pub fn set_shards(&self, count: usize) {
        self.shards.store(count.max(1), Ordering::Relaxed);
    }

    /// Tells another history process that a shard's lease is its own now.
    pub async fn hand_over(&self, shard_id: ShardId, successor: &Member) {
        hand_over::hand_over(&self.channels, shard_id, successor).await;
    }
}

#[async_trait]
impl Neighbours for Fleet {
    fn offer(&self, offer: Offer) -> bool {
        self.offers.offer(offer, self.sticky_timeout)
    }

    fn offer_window(&self) -> usize {
        (self.offers.window() / self.shards.load(Ordering::Relaxed)).max(1)
    }

    fn offer_generation(&self) -> u64 {
        self.offers.generation()
    }

    fn arm(&self, shard_id: ShardId, deadlines: Vec<(ExecutionId, Timestamp)>) {
        self.arming.arm(shard_id, deadlines);
    }

    fn shard_of(&self, execution_id: ExecutionId) -> ShardId {
        self.directory.shard_of(execution_id.slot()).unwrap_or_default()
    }

    async fn deliver(&self, target: ShardId, messages: Vec<OutboxRow>) -> bool {
        delivery::deliver(&self.directory, &self.channels, target, messages).await
    }

    fn acknowledge(&self, shard_id: ShardId, epoch: Epoch, version: (u64, u64)) {
        self.acknowledgements.add(shard_id, epoch, version);
    }

    fn frontends_alive(&self) -> bool {
        !self.directory.members(ServiceKind::Frontend).is_empty()
    }

    async fn reannounce(&self, shard_id: ShardId, epoch: Epoch, within: Duration) {
        let frontends = reannouncement::Frontends { me: &self.me, directory: &self.directory, channels: &self.channels, clock: self.clock.as_ref() };
        frontends.ask(shard_id, epoch, within).await;
    }

    fn sticky_timeout(&self) -> Duration {
        self.sticky_timeout
    }
}
