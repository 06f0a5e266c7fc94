//! What every test of the engine begins with: a store, a fleet, owners of shards, and short forms of the operations.

use super::clock::TestClock;
use super::faulty::{Faults, Faulty};
use super::fleet::FakeFleet;
use crate::shard::ShardHandle;
use crate::shard::actor::{ShardConfig, ShardDeps, Stopper, Tuning, open};
use crate::shard::memory::Memory;
use crate::shard::neighbours::{Offer, OfferKind};
use crate::shard::operation::{Answer, BusinessKey, Operation, Refusal, RunView, StartOperation, TakenActivityTask, TakenWorkflowTask, Target};
use harvest_ids::{ActivityType, DurationMs, ExecutionId, Namespace, RequestId, ShardId, SignalName, Slot, TaskQueue, WorkerId, WorkflowId, WorkflowType};
use harvest_persistence::embedded::EmbeddedStore;
use harvest_persistence::store::ShardStore;
use harvest_runtime::{Clock, SeededIds};
use harvest_workflow_core::command::{ActivityOptions, Command, ScheduleActivity};
use harvest_workflow_core::event::{Event, EventKind};
use harvest_workflow_core::input::{ActivityOutcome, CompleteWorkflowTask, Input, TaskToken};
use harvest_workflow_core::payload::Payload;
use harvest_workflow_core::record::Record;
use harvest_workflow_core::retry::{Jitter, RetryPolicy};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The time after which a test stops waiting for something.
const PATIENCE: Duration = Duration::from_secs(120);

/// What owners of shards share.
pub(super) struct Stage {
    pub(super) store: Arc<dyn ShardStore>,
    pub(super) clock: Arc<TestClock>,
    pub(super) ids: Arc<SeededIds>,
    pub(super) fleet: Arc<FakeFleet>,
}

/// One owner of one shard.
pub(super) struct Owner {
    pub(super) handle: ShardHandle,
    pub(super) stopper: Option<Stopper>,
    pub(super) faults: Arc<Faults>,
    pub(super) config: watch::Sender<Arc<ShardConfig>>,
}

impl Stage {
    pub(super) async fn new(shards: u32) -> Self {
        Self::seeded(shards, 7).await
    }

    pub(super) async fn seeded(shards: u32, seed: u64) -> Self {
        let clock = Arc::new(TestClock::new());
        let time = clock.clone();
        let store = EmbeddedStore::in_memory_with(Arc::new(move || time.now())).unwrap();
        store.migrate(shards).await.unwrap();
        Self { store: Arc::new(store), clock, ids: Arc::new(SeededIds::new(seed)), fleet: Arc::new(FakeFleet::new(shards)) }
    }

    /// Takes a shard over with an owner that messages reach from now on.
    pub(super) async fn open(&self, shard: u32) -> Owner {
        self.open_with(shard, Tuning::default(), self.clock.clone()).await
    }

    pub(super) async fn open_with(&self, shard: u32, tuning: Tuning, clock: Arc<TestClock>) -> Owner {
        self.open_within(shard, tuning, clock, Memory::new(u64::MAX)).await
    }

    /// Takes a shard over whose runs share so much memory.
    pub(super) async fn open_within(&self, shard: u32, tuning: Tuning, clock: Arc<TestClock>, memory: Arc<Memory>) -> Owner {
        let faults = Faults::new();
        let store = Arc::new(Faulty { store: self.store.clone(), faults: faults.clone() });
        let (config, receiver) = watch::channel(Arc::new(ShardConfig::default()));
        let deps = ShardDeps { store, clock, ids: self.ids.clone(), neighbours: self.fleet.clone(), config: receiver, tuning, memory };
        let (handle, stopper) = open(ShardId(shard), deps).await.unwrap();
        self.fleet.inner().owners.insert(ShardId(shard), handle.clone());
        Owner { handle, stopper: Some(stopper), faults, config }
    }

    /// Waits until nothing can go on without time passing.
    pub(super) async fn rest(&self) {
        self.clock.sleep(Duration::from_millis(1)).await;
    }

    /// The answer of something that must come.
    pub(super) async fn soon<T>(&self, future: impl Future<Output = T>) -> T {
        tokio::time::timeout(PATIENCE, future).await.expect("an answer in time")
    }

    /// The oldest offer of a kind by an owner that nobody has taken.
    pub(super) async fn offer(&self, owner: &Owner, kind: OfferKind) -> Offer {
        let find = async {
            loop {
                self.rest().await;
                let mut inner = self.fleet.inner();
                if let Some(at) = inner.offers.iter().position(|offer| offer.kind == kind && offer.shard_id == owner.handle.shard_id) {
                    return inner.offers.remove(at).unwrap();
                }
            }
        };
        tokio::time::timeout(PATIENCE, find).await.unwrap_or_else(|_| panic!("no {kind:?} task was offered"))
    }

    /// A worker takes the next workflow task that is offered.
    pub(super) async fn workflow_task(&self, owner: &Owner, worker: &str) -> TakenWorkflowTask {
        let offer = self.offer(owner, OfferKind::Workflow).await;
        match owner.take(&offer, worker).await {
            Ok(Answer::WorkflowTask(task)) => *task,
            other => panic!("{other:?} instead of a workflow task"),
        }
    }

    /// A worker takes the next activity task that is offered.
    pub(super) async fn activity_task(&self, owner: &Owner, worker: &str) -> TakenActivityTask {
        let offer = self.offer(owner, OfferKind::Activity).await;
        match owner.take(&offer, worker).await {
            Ok(Answer::ActivityTask(task)) => *task,
            other => panic!("{other:?} instead of an activity task"),
        }
    }

    /// All records of a run, from the store.
    pub(super) async fn records(&self, shard: u32, id: ExecutionId) -> Vec<Record> {
        let stored = self.store.load_run(ShardId(shard), id).await.unwrap().expect("the run is stored");
        stored.records.iter().flat_map(|bytes| harvest_wire::records::decode(bytes).unwrap()).collect()
    }

    /// Checks the log of a run and returns its events.
    pub(super) async fn events(&self, shard: u32, id: ExecutionId) -> Vec<Event> {
        let records = self.records(shard, id).await;
        harvest_workflow_core::oracle::check(&records).unwrap();
        let event = |record| match record {
            Record::Event(event) => Some(event),
            Record::Control(_) => None,
        };
        records.into_iter().filter_map(event).collect()
    }
}

impl Owner {
    pub(super) async fn call(&self, operation: Operation) -> Result<Answer, Refusal> {
        tokio::time::timeout(PATIENCE, self.handle.call(operation)).await.expect("an answer in time")
    }

    pub(super) async fn start(&self, id: &str) -> ExecutionId {
        started(self.call(start(id)).await)
    }

    /// Hands an offered task to a worker.
    pub(super) async fn take(&self, offer: &Offer, worker: &str) -> Result<Answer, Refusal> {
        self.call(Operation::TakeTask { execution_id: offer.execution_id, activity_id: offer.activity_id, worker_id: worker_id(worker) }).await
    }

    pub(super) async fn complete(&self, task: &TakenWorkflowTask, commands: Vec<Command>) -> Result<Answer, Refusal> {
        self.call(complete(&task.token, Vec::new(), commands)).await
    }

    pub(super) async fn signal(&self, id: ExecutionId, text: &str) -> Result<Answer, Refusal> {
        self.call(signal(Target::Execution(id), text)).await
    }

    pub(super) async fn describe(&self, id: ExecutionId) -> RunView {
        match self.call(Operation::Describe(Target::Execution(id))).await {
            Ok(Answer::Described(view)) => *view,
            other => panic!("{other:?} instead of a view"),
        }
    }

    /// Stops as a process that hands its shard over.
    pub(super) async fn stop(&mut self) {
        self.stopper.take().unwrap().stop();
        tokio::time::timeout(PATIENCE, self.handle.stopped()).await.expect("the shard stops in time");
    }

    /// As if the process were killed: nothing of it reaches the store any more.
    pub(super) fn kill(&self) {
        self.faults.freeze(true);
    }
}

pub(super) fn started(answer: Result<Answer, Refusal>) -> ExecutionId {
    match answer {
        Ok(Answer::Started { execution_id, .. }) => execution_id,
        other => panic!("{other:?} instead of a started run"),
    }
}

pub(super) fn worker_id(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub(super) fn key(id: &str) -> BusinessKey {
    BusinessKey { namespace: Namespace::default(), workflow_type: WorkflowType::new("order").unwrap(), workflow_id: WorkflowId::new(id).unwrap() }
}

/// The first workflow id like `prefix-n` that lives on a shard, of two.
pub(super) fn id_on(shard: u16, prefix: &str) -> String {
    let on = |id: &String| Slot::of(&Namespace::default(), &WorkflowId::new(id).unwrap()).number() % 2 == shard;
    (0..).map(|number| format!("{prefix}-{number}")).find(on).unwrap()
}

pub(super) fn start_operation(id: &str) -> StartOperation {
    StartOperation {
        key: key(id),
        input: Payload::json("1"),
        task_queue: TaskQueue::default(),
        request_id: None,
        execution_timeout: None,
        chain_execution_timeout: None,
        sla: None,
        workflow_task_timeout: DurationMs::from_millis_const(10_000),
        fail_on_conflict: false,
        eager_worker: None,
    }
}

pub(super) fn start(id: &str) -> Operation {
    Operation::Start(Box::new(start_operation(id)))
}

pub(super) fn requested(id: &str, request: &str, fail_on_conflict: bool) -> Operation {
    let request_id = Some(RequestId::new(request).unwrap());
    Operation::Start(Box::new(StartOperation { request_id, fail_on_conflict, ..start_operation(id) }))
}

pub(super) fn input(id: ExecutionId, input: Input) -> Operation {
    Operation::Input { target: Target::Execution(id), follow_chain: false, input }
}

/// A signal whose text is also its request id.
pub(super) fn signal(target: Target, text: &str) -> Operation {
    let input =
        Input::Signal { name: SignalName::new("go").unwrap(), payload: Payload::json(text.to_owned()), request_id: Some(RequestId::new(text).unwrap()) };
    Operation::Input { target, follow_chain: true, input }
}

pub(super) fn complete(token: &TaskToken, consumed_signals: Vec<harvest_ids::EventId>, commands: Vec<Command>) -> Operation {
    let worker_id = token.dispatch.worker_id.clone();
    let complete = CompleteWorkflowTask { token: token.clone(), worker_id, build_id: "b".into(), sdk: "test".into(), consumed_signals, commands };
    input(token.execution_id, Input::CompleteWorkflowTask(Box::new(complete)))
}

pub(super) fn close_activity(token: &TaskToken, outcome: ActivityOutcome) -> Operation {
    input(token.execution_id, Input::CloseActivity { token: token.clone(), worker_id: token.dispatch.worker_id.clone(), outcome })
}

pub(super) fn done(text: &str) -> ActivityOutcome {
    ActivityOutcome::Completed(Payload::json(text.to_owned()))
}

pub(super) fn activity(attempts: u32) -> Command {
    let retry = RetryPolicy { jitter: Jitter::None, ..RetryPolicy::fixed(attempts, DurationMs::from_millis_const(100)) };
    Command::ScheduleActivity(Box::new(ScheduleActivity {
        activity_type: ActivityType::new("charge").unwrap(),
        input: Payload::null(),
        options: ActivityOptions { retry: Some(retry), ..ActivityOptions::default() },
        attribute: ActivityOptions::default(),
        floor: ActivityOptions::default(),
    }))
}

pub(super) fn finish() -> Command {
    Command::CompleteWorkflow { output: Payload::json("\"done\"") }
}

/// How many events are as `wanted`.
pub(super) fn count(events: &[Event], wanted: impl Fn(&EventKind) -> bool) -> usize {
    events.iter().filter(|event| wanted(&event.kind)).count()
}

pub(super) fn signals(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| match &event.kind {
        EventKind::SignalReceived { payload, .. } => Some(String::from_utf8(payload.data.to_vec()).unwrap()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}
