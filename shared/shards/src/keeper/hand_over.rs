//! Shards on their way from one living process to another.
//!
//! The owner closes the shard, gives its lease to the successor by one statement, and tells it. The successor renews its leases, which shows
//! whether that is still so, and opens what it finds; one that was not told finds it at its next renewal. Only a few shards are on their way
//! at a time, so that each stands still no longer than it must.

use super::{Done, Held, LeaseKeeper, millis};
use harvest_ids::ShardId;
use harvest_persistence::control::{Member, ServiceKind};
use std::collections::BTreeMap;
use tokio::sync::{mpsc, oneshot};

/// Where other processes' shards come in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handed(pub(super) mpsc::Sender<(ShardId, oneshot::Sender<()>)>);

impl Handed {
    /// Says that an owner has given this process the shard's lease. Returns when the shard is open, or will not be.
    pub async fn take(&self, shard: ShardId) {
        let (opens, opened) = oneshot::channel();
        if self.0.send((shard, opens)).await.is_ok() {
            // Dropped rather than used: both mean that there is nothing to wait for.
            drop(opened.await);
        }
    }
}

impl LeaseKeeper {
    /// Hands over what others should have, as planned from members read just now: one that has left would keep its reservation unused.
    pub(super) async fn hand_over(&mut self) {
        if self.directory.refresh_members().await.is_err() {
            return; // no need to move anything while the store is away
        }
        let plan = self.plan(&self.directory.snapshot(), self.clock.monotonic());
        let open = plan.hand_over.into_iter().filter(|(shard, _)| self.held.get(shard) == Some(&Held::Open));
        for (shard, successor) in open.take(self.room()).collect::<Vec<_>>() {
            let Some(member) = self.directory.members(ServiceKind::History).into_iter().find(|member| member.process_id == successor) else { continue };
            tracing::info!(%shard, successor, "handing shard over");
            self.close(shard, Held::Closing(Some(member)));
        }
    }

    /// How many more shards may be on their way to others.
    fn room(&self) -> usize {
        let closing = self.held.values().filter(|held| matches!(held, Held::Closing(_))).count();
        self.options.max_handovers.saturating_sub(closing + self.telling)
    }

    /// Gives the lease of a closed shard to its next owner and tells it.
    pub(super) async fn give(&mut self, shard: ShardId, successor: Member) {
        match self.store.transfer_lease(shard, &self.me.process_id, &successor, millis(self.options.ttl)).await {
            Ok(given) => {
                self.next_read = self.clock.monotonic(); // the view still shows this process as the holder
                if given {
                    self.telling += 1;
                    let (host, done) = (self.host.clone(), self.done_sender.clone());
                    drop(harvest_runtime::spawn("hand shard over", async move {
                        host.hand_over(shard, &successor).await;
                        drop(done.send(Done::Told).await);
                    }));
                }
            }
            Err(error) => tracing::warn!(%shard, %error, "lease cannot be given away: the next renewal finds it and the shard is opened again"),
        }
    }

    /// Another process says that it has given this one a lease: the renewal, which comes at once, shows it and opens the shard.
    pub(super) async fn take_handed(&mut self, shard: ShardId, opened: oneshot::Sender<()>) {
        self.awaited.entry(shard).or_default().push(opened);
        while let Ok((shard, opened)) = self.handed.try_recv() {
            self.awaited.entry(shard).or_default().push(opened);
        }
        self.renew().await;
        self.awaited.retain(|shard, _| self.held.get(shard) == Some(&Held::Opening));
    }

    pub(super) async fn hand_over_all(&mut self) {
        if let Err(error) = self.directory.leave(&self.me.process_id).await {
            tracing::warn!(%error, "could not leave the membership: it runs out by itself");
        }
        let deadline = self.clock.monotonic() + self.options.shutdown_timeout;
        self.begin_leaving();
        while !self.held.is_empty() || self.telling > 0 {
            let wait = self.next_renew.min(deadline).saturating_sub(self.clock.monotonic());
            let clock = self.clock.clone();
            tokio::select! {
                Some(done) = self.done.recv() => {
                    self.on_done(done).await;
                    self.begin_leaving();
                }
                // Given by one that did not know yet.
                Some((shard, _)) = self.handed.recv() => self.release(shard).await,
                () = clock.sleep(wait) => {
                    if self.clock.monotonic() >= deadline {
                        tracing::warn!(shards = self.held.len(), "shards were not handed over in time: their leases run out");
                        return;
                    }
                    // Alone the holding on matters here: a shard that closes slowly must not be taken from under it.
                    self.next_renew = self.clock.monotonic() + self.options.renew_interval;
                    if let Err(error) = self.store.renew_leases(&self.me.process_id, millis(self.options.ttl)).await {
                        tracing::warn!(%error, "leases cannot be renewed while shards are handed over");
                    }
                }
            }
        }
    }

    /// Begins to close open shards, as many as may be on their way, each for the process that should have it when this one is gone; all of them
    /// when nobody could have them.
    fn begin_leaving(&mut self) {
        let snapshot = self.directory.snapshot();
        self.held.retain(|_, held| !matches!(held, Held::Failed(_)));
        let others: Vec<Member> = snapshot
            .members(ServiceKind::History)
            .filter(|member| member.process_id != self.me.process_id)
            .filter(|member| !self.distrusted.contains_key(&member.process_id) && !snapshot.suspects.contains_key(&member.process_id))
            .cloned()
            .collect();
        let mut shares: BTreeMap<&str, usize> = others.iter().map(|member| (member.process_id.as_str(), 0)).collect();
        for view in snapshot.leases.values() {
            if let Some(share) = view.lease.owner.as_deref().and_then(|owner| shares.get_mut(owner)) {
                *share += 1;
            }
        }
        let room = if others.is_empty() { usize::MAX } else { self.room() };
        let open: Vec<ShardId> = self.held.iter().filter(|(_, held)| **held == Held::Open).map(|(shard, _)| *shard).take(room).collect();
        for shard in open {
            let successor = others.iter().min_by_key(|member| shares.get(member.process_id.as_str()).copied()).cloned();
            if let Some(share) = successor.as_ref().and_then(|member| shares.get_mut(member.process_id.as_str())) {
                *share += 1;
            }
            self.close(shard, Held::Closing(successor));
        }
    }
}
