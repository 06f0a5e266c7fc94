//! A store that stays away: disk full, database down, read only.
//!
//! A batch that fails is tried again for [`PATIENCE`]. When it has not committed by then, the shard is *away*: whatever waits for the
//! store is refused, so is at once whatever comes, and nothing is decided. The way back is the same whatever went wrong: the own epoch is
//! raised, which is a write, waits for a statement that may still be under way, and says whether the batch in flight has landed. Then
//! memory is made equal to the store: what was decided and is not there is forgotten, as with a poisoned batch, so that no refused
//! operation is carried out later, except one whose batch had landed. A store that is reachable and takes no batch (a disk with room for
//! an epoch) sends the shard away again at the first failure.

use super::actor::{Actor, Happening};
use super::batch::{InFlight, respond};
use super::commit::dispatches_of;
use super::operation::{Operation, Refusal};
use harvest_ids::{Epoch, ExecutionId};
use harvest_persistence::error::StoreError;
use harvest_persistence::store::{BacklogQueue, TaskKind};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a batch or a look at the epoch is waited for before callers are refused.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);
/// Between the first tries to reach a store that is away.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Between later ones.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pauses between tries to reach a store, longer and longer.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> + Send {
    std::iter::successors(Some(FIRST_PAUSE), |pause| Some((*pause * 2).min(LONGEST_PAUSE)))
}

/// How the store does, as far as this shard knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Standing {
    #[default]
    Well,
    /// A batch has failed and is tried again; callers wait.
    Troubled,
    /// Callers are refused.
    Away,
    /// It can be reached again and has not taken a batch yet.
    Returned,
}

/// What the shard knows of its store's health.
#[derive(Debug, Default)]
pub(crate) struct Health {
    standing: Standing,
    /// When the batch in flight was first sent.
    sent_at: Duration,
    /// Since when it has not been well.
    unwell_since: Duration,
    /// Dispatches whose answers were refused, so that no worker knows of them, and their runs: until memory is made equal to the store.
    untold: BTreeSet<(Epoch, u64)>,
    untold_runs: BTreeSet<ExecutionId>,
    /// When reads began to fail, and when the last one did; `None` once one has worked.
    reads_failing: Option<(Duration, Duration)>,
    /// A page of pending work could not be read at the last try.
    pages_failing: bool,
}

impl Health {
    pub(crate) fn is_away(&self) -> bool {
        self.standing == Standing::Away
    }

    /// A new batch is on its way.
    pub(crate) fn sent(&mut self, now: Duration) {
        self.sent_at = now;
    }

    /// When callers are not made to wait any longer for the batch that was sent last.
    fn patience_ends(&self) -> Duration {
        self.sent_at + PATIENCE
    }

    /// Takes note of a read. True when reads have been failing for longer than callers are made to wait.
    fn read(&mut self, failed: bool, now: Duration) -> bool {
        if !failed {
            self.reads_failing = None;
            return false;
        }
        // A single failure long ago says nothing about now.
        let since = self.reads_failing.filter(|(_, last)| now.saturating_sub(*last) < PATIENCE).map_or(now, |(since, _)| since);
        self.reads_failing = Some((since, now));
        now.saturating_sub(since) >= PATIENCE
    }

    /// Takes note of a page of pending work. True when its failure is news.
    pub(crate) fn page_read(&mut self, failed: bool) -> bool {
        !std::mem::replace(&mut self.pages_failing, failed) && failed
    }
}

impl Actor {
    /// For how long at most callers may still be made to wait: while a batch is with the store, or no writer is open for the next one.
    pub(crate) fn patience_left(&self, now: Duration) -> Option<Duration> {
        (self.writer.is_none() && !self.health.is_away()).then(|| self.health.patience_ends().saturating_sub(now))
    }

    /// Nothing has happened for a while: a batch that is away for too long is not waited for any longer. A process that was itself asleep
    /// gets here only when no answer of the store is waiting for it.
    pub(crate) fn lose_patience(&mut self) {
        if self.patience_left(self.deps.clock.monotonic()).is_some_and(|left| left.is_zero()) {
            self.go_away("a batch is not committed in time");
        }
    }

    /// Refuses whoever waits for a store that is away.
    pub(crate) fn refuse_while_away(&mut self) {
        if self.health.is_away() {
            self.refuse_waiting();
        }
    }

    /// Learns from a read how the store does: a shard that has nothing to write finds out by its reads.
    pub(crate) fn note_read<T>(&mut self, read: &Result<T, StoreError>) {
        let now = self.deps.clock.monotonic();
        match read {
            Err(StoreError::Unavailable(why)) => {
                if self.health.read(true, now) {
                    self.go_away(why);
                }
            }
            Ok(_) | Err(StoreError::Corrupt(_) | StoreError::Refused(_)) => _ = self.health.read(false, now),
        }
    }

    /// A batch failed. `why` is for people; `unknown` when it may have landed all the same.
    pub(crate) fn batch_failed(&mut self, why: &str, unknown: bool) {
        match self.health.standing {
            Standing::Well => {
                self.health.standing = Standing::Troubled;
                self.health.unwell_since = self.deps.clock.monotonic();
                tracing::warn!(shard = self.shard_id.0, error = why, unknown, "a commit failed; the store is asked again");
            }
            Standing::Troubled | Standing::Away => tracing::debug!(shard = self.shard_id.0, error = why, unknown, "a commit failed again"),
            Standing::Returned => self.go_away(why),
        }
        if unknown || self.health.is_away() {
            self.settle();
        } else {
            self.reopen();
        }
    }

    /// The store took a batch, or refused one for its values.
    pub(crate) fn store_answered(&mut self) {
        if std::mem::take(&mut self.health.standing) != Standing::Well {
            let after = self.deps.clock.monotonic().saturating_sub(self.health.unwell_since);
            tracing::info!(shard = self.shard_id.0, after_ms = after.as_millis(), "the store takes batches again");
        }
    }

    /// From now on callers are refused until the store is back.
    pub(crate) fn go_away(&mut self, why: &str) {
        match self.health.standing {
            Standing::Away => return,
            Standing::Returned => tracing::debug!(shard = self.shard_id.0, error = why, "the store is away again"),
            Standing::Well | Standing::Troubled => {
                tracing::warn!(shard = self.shard_id.0, error = why, "the store is away: calls are refused until it is back");
            }
        }
        if self.health.standing == Standing::Well {
            self.health.unwell_since = self.deps.clock.monotonic();
        }
        self.health.standing = Standing::Away;
        // With a batch on its way, its return is what leads back.
        if self.in_flight.is_none() && !self.settling {
            self.writer = None;
            self.settle();
        }
    }

    /// Answers all that wait for the store. Whether what they asked for took effect is not known, save for what was not decided yet.
    fn refuse_waiting(&mut self) {
        let mut riding = std::mem::take(&mut self.clean);
        riding.append(&mut self.open.riding);
        if let Some(in_flight) = &mut self.in_flight {
            riding.append(&mut in_flight.take_riding());
        }
        for refused in &riding {
            let dispatches = dispatches_of(refused);
            if !dispatches.is_empty() {
                self.health.untold_runs.extend(worked_on(&refused.envelope.operation));
                self.health.untold.extend(dispatches);
            }
        }
        self.refuse(riding, &Refusal::StoreAway);
        // Reads that are under way stay noted: what they bring is of now, and must not be read a second time beside them.
        let reading = self.loading.values_mut().chain(self.finding.values_mut()).flat_map(std::mem::take);
        let envelopes: Vec<_> = reading.chain(self.resumed.drain(..).map(|(_, envelope)| envelope)).chain(self.solo.drain(..)).collect();
        self.parked = 0;
        for envelope in envelopes {
            respond(envelope.responder, Err(Refusal::StoreAway));
        }
    }

    /// What was decided and is not in the store is forgotten: nobody was told of it.
    pub(crate) fn forget_undurable(&mut self) {
        self.refuse_waiting();
        let (in_flight, open) = (self.in_flight.take(), std::mem::take(&mut self.open));
        let untold = std::mem::take(&mut self.health.untold);
        let mut runs = std::mem::take(&mut self.health.untold_runs);
        runs.retain(|run| self.cache.contains(*run));
        self.undo(runs, in_flight.as_ref(), &open, &untold);
        self.open.delivered = open.delivered;
        self.open.delivered.extend(in_flight.into_iter().flat_map(|InFlight { batch, .. }| batch.outbox_gone));
        // No decision of an older configuration is on its way any more.
        if let Some((after, _)) = &mut self.owed_acknowledgement {
            *after = self.committed.min(*after);
        }
    }

    /// A writer is open again after an outage, and memory is what the store holds.
    pub(crate) fn returned(&mut self) {
        self.health.standing = Standing::Returned;
        self.load_undone();
        self.read_backlog();
    }

    /// Finds all queues with pending tasks: offers may have been taken by those who were then refused.
    fn read_backlog(&mut self) {
        let (store, clock, shard_id) = (self.deps.store.clone(), self.deps.clock.clone(), self.shard_id);
        self.spawn(async move {
            let found = store.backlog_queues(shard_id).await;
            if found.is_err() {
                clock.sleep(LONGEST_PAUSE).await;
            }
            Happening::Backlog(found)
        });
    }

    pub(crate) fn backlog_read(&mut self, found: Result<Vec<BacklogQueue>, StoreError>) {
        match found {
            Ok(queues) => {
                // Activities that are held back after a takeover come when that is over.
                let held = !self.held.is_empty();
                queues.iter().filter(|queue| !(held && queue.kind == TaskKind::Activity)).for_each(|queue| self.ready.add_backlog(queue));
            }
            Err(error) => {
                tracing::debug!(shard = self.shard_id.0, %error, "the queues with pending tasks cannot be read");
                if !self.health.is_away() {
                    self.read_backlog();
                }
            }
        }
    }
}

/// The run whose tasks an operation may hand out.
fn worked_on(operation: &Operation) -> Option<ExecutionId> {
    match operation {
        Operation::TakeTask { execution_id, .. } => Some(*execution_id),
        Operation::Eager(eager) => eager.answers().map(|(token, _)| token.execution_id),
        _ => None,
    }
}
