//! The loop of a shard, and everything it holds.

use super::admission::Gate;
use super::batch::{InFlight, OpenBatch, Riding, respond};
use super::cache::Cache;
use super::commit::LostStart;
use super::liveness::{Liveness, SWEEP_EVERY};
use super::loading::Loads;
use super::memory::Memory;
use super::neighbours::Neighbours;
use super::operation::{BusinessKey, Refusal};
use super::outage::{Health, PATIENCE, pauses};
use super::outbox::Outbox;
use super::pace::Pace;
use super::queries::Queries;
use super::ready::{QueueKey, Ready};
pub use super::tuning::Tuning;
use super::{Envelope, ShardHandle};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use harvest_ids::{Epoch, ExecutionId, Namespace, ShardId, Timestamp};
use harvest_persistence::batch::{OutboxRow, TaskRow};
use harvest_persistence::error::{CommitError, StoreError};
use harvest_persistence::store::{BacklogQueue, Fence, ShardStore, ShardWriter, StoredRun, TaskKind};
use harvest_runtime::{Clock, IdSource, metrics};
use harvest_workflow_core::defaults::Types;
use harvest_workflow_core::limits::Limits;
use harvest_workflow_core::state::Status;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// A deadline within this span is announced to the timer scanner at once; its scan finds the others in time.
pub(crate) const NEAR: Duration = Duration::from_secs(15);

/// Most operations that wait inside the loop: for their run to be loaded, or with an answer that waits for a commit that is away or a
/// look at the epoch. Beyond it the inbox fills, and what does not fit there is refused.
pub(crate) const MAX_PARKED: usize = 10_000;

/// What a shard needs.
#[derive(Clone)]
pub struct ShardDeps {
    /// Where runs are kept.
    pub store: Arc<dyn ShardStore>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub ids: Arc<dyn IdSource>,
    /// The rest of the fleet.
    pub neighbours: Arc<dyn Neighbours>,
    /// Limits in force.
    pub config: watch::Receiver<Arc<ShardConfig>>,
    /// Sizes.
    pub tuning: Tuning,
    /// What runs of all shards of the process may take together.
    pub memory: Arc<Memory>,
}

/// The configuration that decisions are made under.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShardConfig {
    /// Its version: generation, number.
    pub version: (u64, u64),
    /// The bounds.
    pub limits: Limits,
    /// What attributes say, by tenant.
    pub types: Arc<BTreeMap<Namespace, Types>>,
}

/// Something that the shard waited for.
pub(crate) enum Happening {
    Committed(Box<dyn ShardWriter>, Result<(), CommitError>),
    Settled(Option<Fence>),
    Reopened(Epoch, Box<dyn ShardWriter>),
    Backlog(Result<Vec<BacklogQueue>, StoreError>),
    Loaded(ExecutionId, Result<Option<Box<StoredRun>>, StoreError>),
    Found(Vec<BusinessKey>, Result<Vec<Option<(ExecutionId, Status)>>, StoreError>),
    Checked(Vec<Riding>, Result<Epoch, StoreError>),
    Delivered(ShardId, bool),
    TaskPage(QueueKey, Result<Vec<TaskRow>, StoreError>),
    OutboxPage(Result<Vec<OutboxRow>, StoreError>),
    HoldOver,
    Announced(Box<Riding>),
}

/// Rows asked for in one page.
pub(crate) const PAGE: u32 = 500;

pub(crate) struct Actor {
    pub(crate) shard_id: ShardId,
    pub(crate) epoch: Epoch,
    /// Offers of this and later epochs of ours are good.
    pub(crate) first_epoch: Epoch,
    pub(crate) deps: ShardDeps,
    pub(crate) config: Arc<ShardConfig>,
    /// Acknowledge this version once this batch has committed.
    pub(crate) owed_acknowledgement: Option<(u64, (u64, u64))>,
    pub(crate) cache: Cache,
    pub(crate) open: OpenBatch,
    pub(crate) in_flight: Option<InFlight>,
    /// Absent while a batch is with the store or its outcome is being settled.
    pub(crate) writer: Option<Box<dyn ShardWriter>>,
    pub(crate) committed: u64,
    /// Operations whose run, or whose key's run, is being read; how many there are is in `parked`.
    pub(crate) loading: BTreeMap<ExecutionId, Vec<Envelope>>,
    pub(crate) loads: Loads,
    pub(crate) finding: BTreeMap<BusinessKey, Vec<Envelope>>,
    /// Keys of `finding` that are not being read yet, and whether others are.
    pub(crate) unfound: Vec<BusinessKey>,
    pub(crate) looking: bool,
    pub(crate) parked: usize,
    /// Operations whose run has been read. They go on as the open batch has room, before anything new.
    pub(crate) resumed: VecDeque<(ExecutionId, Envelope)>,
    pub(crate) pace: Pace,
    pub(crate) clean: Vec<Riding>,
    pub(crate) checking: bool,
    /// The outcome of a commit is being settled, which raises our own epoch.
    pub(crate) settling: bool,
    pub(crate) health: Health,
    pub(crate) waiters: BTreeMap<ExecutionId, Vec<Envelope>>,
    pub(crate) waiting_results: Arc<Gate>,
    pub(crate) ready: Ready,
    pub(crate) held: Vec<BacklogQueue>,
    pub(crate) outbox: Outbox,
    pub(crate) liveness: Liveness,
    pub(crate) queries: Queries,
    /// Deadlines that have no due row yet: of tasks whose start is not saved.
    pub(crate) volatile: BTreeSet<(Timestamp, ExecutionId)>,
    /// Operations of a poisoned batch, decided again one by one.
    pub(crate) solo: VecDeque<Envelope>,
    /// Runs that were undone with a poisoned batch and are not loaded again yet, with starts of their tasks that workers know of.
    pub(crate) undone: BTreeMap<ExecutionId, Vec<LostStart>>,
    pub(crate) last_now: Timestamp,
    pub(crate) dispatches: u64,
    pub(crate) next_task_sequence: i64,
    pub(crate) next_outbox_sequence: i64,
    pub(crate) work: FuturesUnordered<BoxFuture<'static, Happening>>,
    pub(crate) stopping: bool,
    pub(crate) lost: bool,
}

/// Asks a running shard to stop: it writes what it has, answers the rest `NotOwner` and ends.
#[derive(Debug)]
pub struct Stopper(oneshot::Sender<()>);

impl Stopper {
    /// Asks. The handle's `stopped` tells when it is done.
    pub fn stop(self) {
        if self.0.send(()).is_err() {
            tracing::debug!("the shard had stopped already");
        }
    }
}

/// Takes a shard over and runs it. When this returns, no older owner can write any more.
///
/// # Errors
/// When the store cannot be reached.
pub async fn open(shard_id: ShardId, deps: ShardDeps) -> Result<(ShardHandle, Stopper), StoreError> {
    open_when(shard_id, deps, std::future::ready(())).await
}

/// The same; `ready` (the newest configuration, say) is waited for beside the store, and nothing is decided before it.
///
/// # Errors
/// When the store cannot be reached.
pub async fn open_when(shard_id: ShardId, deps: ShardDeps, ready: impl Future<Output = ()>) -> Result<(ShardHandle, Stopper), StoreError> {
    let store = async {
        let fence = deps.store.take_over(shard_id).await?;
        harvest_runtime::crash::point("history.loading");
        // These do not wait for each other: a takeover is a race against callers' patience, and each is round trips.
        let (writer, recovery, backlog) =
            tokio::try_join!(deps.store.open_writer(shard_id, fence.epoch), deps.store.recovery(shard_id), deps.store.backlog_queues(shard_id))?;
        Ok::<_, StoreError>((fence, writer, recovery, backlog))
    };
    let (opened, ()) = tokio::join!(store, ready);
    let (fence, writer, recovery, backlog) = opened?;
    let gate = Gate::new(deps.tuning.inbox());
    let (operations, inbox) = mpsc::channel(deps.tuning.inbox_operations);
    let (stop, stopping) = oneshot::channel();
    let (stopped_sender, stopped) = watch::channel(false);
    let config = deps.config.borrow().clone();
    let mut actor = Actor {
        shard_id,
        epoch: fence.epoch,
        first_epoch: fence.epoch,
        owed_acknowledgement: Some((0, config.version)),
        config,
        cache: Cache::new(deps.tuning.cached_runs, deps.memory.clone()),
        open: OpenBatch::default(),
        in_flight: None,
        writer: Some(writer),
        committed: fence.batch_seq,
        loading: BTreeMap::new(),
        loads: Loads::default(),
        finding: BTreeMap::new(),
        unfound: Vec::new(),
        looking: false,
        pace: Pace::default(),
        parked: 0,
        resumed: VecDeque::new(),
        clean: Vec::new(),
        checking: false,
        settling: false,
        health: Health::default(),
        waiters: BTreeMap::new(),
        waiting_results: Gate::new(deps.tuning.results()),
        ready: Ready::default(),
        held: Vec::new(),
        outbox: Outbox::default(),
        liveness: Liveness::new(deps.clock.monotonic()),
        queries: Queries::new(Gate::new(deps.tuning.queries())),
        volatile: BTreeSet::new(),
        solo: VecDeque::new(),
        undone: BTreeMap::new(),
        last_now: Timestamp::default(),
        dispatches: 0,
        next_task_sequence: recovery.last_task_sequence + 1,
        next_outbox_sequence: recovery.last_outbox_sequence + 1,
        work: FuturesUnordered::new(),
        stopping: false,
        lost: false,
        deps,
    };
    actor.recover(backlog);
    tracing::info!(shard = shard_id.0, epoch = fence.epoch.0, "shard opened");
    metrics::SHARD_GENERATION.set_count(fence.epoch.0, [&shard_id.to_string()]);
    harvest_runtime::spawn("shard", async move {
        actor.run(inbox, stopping).await;
        stopped_sender.send_replace(true);
    });
    Ok((ShardHandle { shard_id, operations, inbox: gate, stopped }, Stopper(stop)))
}

impl Actor {
    fn recover(&mut self, backlog: Vec<BacklogQueue>) {
        self.outbox.recover();
        for queue in backlog {
            match queue.kind {
                TaskKind::Workflow => self.ready.add_backlog(&queue),
                TaskKind::Activity => self.held.push(queue),
            }
        }
        // Also when nothing is held back: whoever is asked knows at once where the shard is, and need not find out from a frozen owner.
        let (neighbours, clock, hold) = (self.deps.neighbours.clone(), self.deps.clock.clone(), self.deps.tuning.takeover_hold);
        let (shard_id, epoch, held) = (self.shard_id, self.epoch, self.held.len());
        self.spawn(async move {
            tokio::select! {
                () = neighbours.reannounce(shard_id, epoch, hold) => {}
                () = clock.sleep(hold) => tracing::info!(shard = shard_id.0, held, "not all frontends have said in time what their workers run"),
            }
            Happening::HoldOver
        });
    }

    async fn run(&mut self, mut inbox: mpsc::Receiver<Envelope>, mut stopping: oneshot::Receiver<()>) {
        let mut config = self.deps.config.clone();
        let mut config_lives = true;
        let clock = self.deps.clock.clone();
        let mut next_sweep = clock.monotonic() + SWEEP_EVERY;
        loop {
            self.advance();
            // A store that is away takes nothing: what is not in it nobody was promised.
            if self.lost || (self.stopping && (self.is_idle() || self.health.is_away())) {
                break;
            }
            let accepts = !self.stopping && self.accepts();
            let nap = self.nap(next_sweep);
            tokio::select! {
                biased;
                Some(happening) = self.work.next(), if !self.work.is_empty() => self.happened(happening),
                _ = &mut stopping, if !self.stopping => self.stop_asked(),
                envelope = inbox.recv(), if accepts => match envelope {
                    Some(envelope) => {
                        self.take(envelope);
                        self.take_more(&mut inbox);
                    }
                    None => self.stop_asked(),
                },
                changed = config.changed(), if config_lives => match changed {
                    Ok(()) => self.configure(config.borrow_and_update().clone()),
                    Err(_) => config_lives = false,
                },
                () = clock.sleep(nap) => self.lose_patience(),
            }
            self.wake_volatile();
            let now = clock.monotonic();
            if now >= next_sweep {
                next_sweep = now + SWEEP_EVERY;
                self.sweep(now);
            }
        }
        inbox.close();
        self.refuse_everything(&mut inbox);
        tracing::info!(shard = self.shard_id.0, epoch = self.epoch.0, lost = self.lost, "shard closed");
    }

    /// What has arrived already joins the batch that is about to be sent.
    fn take_more(&mut self, inbox: &mut mpsc::Receiver<Envelope>) {
        while self.accepts() {
            match inbox.try_recv() {
                Ok(envelope) => self.take(envelope),
                Err(_) => return,
            }
        }
    }

    fn accepts(&self) -> bool {
        let waiting = self.parked + self.clean.len() + self.in_flight.as_ref().map_or(0, |in_flight| in_flight.riding.len() + in_flight.late.len());
        self.health.is_away() || (self.solo.is_empty() && self.resumed.is_empty() && !self.open.is_full() && waiting < MAX_PARKED)
    }

    fn is_idle(&self) -> bool {
        let written = self.in_flight.is_none() && !self.open.has_writes() && self.open.riding.is_empty();
        written && self.clean.is_empty() && !self.checking && self.solo.is_empty() && self.resumed.is_empty()
    }

    fn nap(&self, next_sweep: Duration) -> Duration {
        let now = self.deps.clock.monotonic();
        let volatile = self.volatile.first().filter(|_| !self.health.is_away()).map(|(at, _)| at.since(self.deps.clock.now()));
        let delivery = self.outbox.next_try(now).map(|at| at.saturating_sub(now));
        [volatile, delivery, self.patience_left(now), self.lingers(now)].into_iter().flatten().fold(next_sweep.saturating_sub(now), Duration::min)
    }

    /// Starts whatever can be started: the next batch, epoch checks, offers, deliveries, pages.
    fn advance(&mut self) {
        self.refuse_while_away();
        self.next_solo();
        self.resume();
        if self.stopping {
            // What is only in memory becomes durable, so that the next owner knows which tasks are with a worker.
            self.save_unsaved(usize::MAX);
        }
        self.send_batch();
        self.resume();
        self.find();
        self.make_room();
        self.read_runs();
        self.check_epoch();
        self.pay_acknowledgement();
        if !self.health.is_away() {
            self.offer();
        }
        self.deliver();
    }

    /// Operations whose run has been read go on, as far as the open batch has room.
    fn resume(&mut self) {
        while !self.open.is_full()
            && let Some((id, envelope)) = self.resumed.pop_front()
        {
            self.go_on_with_run(id, envelope);
        }
    }

    pub(crate) fn spawn(&mut self, future: impl Future<Output = Happening> + Send + 'static) {
        self.work.push(Box::pin(future));
    }

    /// The owner's clock: wall time that never goes back within one ownership.
    pub(crate) fn now(&mut self) -> Timestamp {
        self.last_now = self.last_now.max(self.deps.clock.now());
        self.last_now
    }

    fn configure(&mut self, config: Arc<ShardConfig>) {
        if config.version < self.config.version {
            return;
        }
        let newer = config.version > self.config.version;
        self.config = config;
        if !newer {
            return; // what is registered has changed: nobody waits for that to be acknowledged
        }
        let after = if self.open.has_writes() { self.sealed_batch() + 1 } else { self.sealed_batch() };
        self.owed_acknowledgement = Some((after, self.config.version));
    }

    /// The newest batch that is sealed, committed or not.
    pub(crate) fn sealed_batch(&self) -> u64 {
        self.in_flight.as_ref().map_or(self.committed, |in_flight| in_flight.id.batch_seq)
    }

    fn pay_acknowledgement(&mut self) {
        if let Some((after, version)) = self.owed_acknowledgement
            && self.committed >= after
        {
            self.owed_acknowledgement = None;
            self.deps.neighbours.acknowledge(self.shard_id, self.epoch, version);
        }
    }

    /// Sends the answers that changed nothing once one look at the epoch has shown that the shard is still ours.
    fn check_epoch(&mut self) {
        if self.checking || self.settling || self.clean.is_empty() {
            return;
        }
        self.checking = true;
        let riding = std::mem::take(&mut self.clean);
        let (store, clock, shard_id) = (self.deps.store.clone(), self.deps.clock.clone(), self.shard_id);
        self.spawn(async move {
            let read = async {
                let mut pauses = pauses();
                loop {
                    match store.epoch(shard_id).await {
                        Err(StoreError::Unavailable(_)) => clock.sleep(pauses.next().unwrap_or_default()).await,
                        answer => return answer,
                    }
                }
            };
            tokio::select! {
                biased;
                answer = read => Happening::Checked(riding, answer),
                () = clock.sleep(PATIENCE) => Happening::Checked(riding, Err(StoreError::Unavailable("the epoch cannot be read".into()))),
            }
        });
    }

    pub(crate) fn checked(&mut self, riding: Vec<Riding>, answer: Result<Epoch, StoreError>) {
        self.checking = false;
        match answer {
            // Settling an unknown commit raises our own epoch: ours are all from the first on, up to the one we hold.
            Ok(epoch) if epoch >= self.first_epoch && epoch <= self.epoch => riding.into_iter().for_each(|riding| self.release(riding)),
            // Settling may just have raised the epoch for us: looked at again when that is known.
            Ok(_) if self.settling => self.clean.extend(riding),
            Ok(_) => {
                self.refuse(riding, &Refusal::NotOwner);
                self.lose();
            }
            Err(StoreError::Unavailable(why)) => {
                self.clean.extend(riding);
                self.go_away(&why);
            }
            Err(error) => self.refuse(riding, &Refusal::Unavailable(error.to_string())),
        }
    }

    pub(crate) fn lose(&mut self) {
        if !self.lost {
            tracing::warn!(shard = self.shard_id.0, epoch = self.epoch.0, "shard lost to another owner");
            metrics::SHARD_FENCED.add(1, [&self.shard_id.to_string()]);
        }
        self.lost = true;
    }

    pub(crate) fn refuse(&self, riding: Vec<Riding>, refusal: &Refusal) {
        for riding in riding {
            respond(riding.envelope.responder, Err(refusal.clone()));
        }
    }

    /// Nothing more is decided for callers; what is decided is written.
    fn stop_asked(&mut self) {
        self.stopping = true;
        self.refuse_parked();
    }

    /// Operations that wait for their run are left to the next owner.
    fn refuse_parked(&mut self) {
        self.loads.forget();
        let loading = std::mem::take(&mut self.loading).into_values().flatten();
        self.unfound.clear();
        let finding = std::mem::take(&mut self.finding).into_values().flatten();
        let resumed = std::mem::take(&mut self.resumed).into_iter().map(|(_, envelope)| envelope);
        for envelope in loading.chain(finding).chain(resumed) {
            respond(envelope.responder, Err(Refusal::NotOwner));
        }
        self.parked = 0;
    }

    fn refuse_everything(&mut self, inbox: &mut mpsc::Receiver<Envelope>) {
        self.queries.drain();
        self.refuse_parked();
        let mut envelopes: Vec<Envelope> = self.solo.drain(..).collect();
        envelopes.extend(std::mem::take(&mut self.waiters).into_values().flatten());
        while let Ok(envelope) = inbox.try_recv() {
            envelopes.push(envelope);
        }
        for envelope in envelopes {
            respond(envelope.responder, Err(Refusal::NotOwner));
        }
        let mut riding = std::mem::take(&mut self.clean);
        riding.append(&mut self.open.riding);
        if let Some(in_flight) = &mut self.in_flight {
            riding.append(&mut in_flight.take_riding());
        }
        self.refuse(riding, &Refusal::NotOwner);
    }
}
