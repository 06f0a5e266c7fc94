//! The judgement: what the store holds against the laws and against what was promised.

use super::World;
use super::program::Code;
use crate::shard::operation::{Answer, Operation, Target};
use harvest_ids::{EventId, ExecutionId, Namespace, Timestamp};
use harvest_persistence::store::{RunFilter, StoredRun};
use harvest_workflow_core::State;
use harvest_workflow_core::event::{Event, EventKind};
use harvest_workflow_core::oracle::{check_chain, review};
use harvest_workflow_core::record::Record;
use harvest_workflow_core::state::Status;
use std::collections::{BTreeMap, BTreeSet};

type Verdict = Result<(), String>;

/// A run as the store has it.
struct Judged {
    stored: StoredRun,
    records: Vec<Record>,
    events: Vec<Event>,
    state: State,
}

async fn list(world: &World, status: Option<Status>) -> Vec<ExecutionId> {
    let filter = RunFilter { status, limit: 10_000, ..RunFilter::all(Namespace::default()) };
    world.store.list(&filter).await.unwrap().into_iter().map(|row| row.execution_id).collect()
}

/// Whether no run is open and no message is on its way.
pub(super) async fn is_at_rest(world: &World) -> bool {
    let mut at_rest = list(world, Some(Status::Running)).await.is_empty();
    for shard_id in World::shards() {
        at_rest &= world.store.outbox(shard_id, 0, 1).await.unwrap().is_empty();
    }
    at_rest
}

/// Judges everything.
pub(super) async fn judge(world: &World) -> Verdict {
    let mut runs = BTreeMap::new();
    for id in list(world, None).await {
        runs.insert(id, load(world, id).await);
    }
    for (id, run) in &runs {
        judge_run(run).map_err(|rule| format!("run {id}: {rule}"))?;
        judge_memory(world, *id, run).await.map_err(|rule| format!("run {id}: {rule}"))?;
    }
    judge_chains(&runs)?;
    judge_tables(world).await?;
    judge_promises(world, &runs)
}

async fn load(world: &World, id: ExecutionId) -> Judged {
    let stored = world.store.load_run(World::shard_of(id), id).await.unwrap().unwrap();
    let records: Vec<Record> = stored.records.iter().flat_map(|bytes| harvest_wire::records::decode(bytes).unwrap()).collect();
    let event = |record: &Record| match record {
        Record::Event(event) => Some(event.clone()),
        Record::Control(_) => None,
    };
    let events = records.iter().filter_map(event).collect();
    Judged { state: State::from_records(&records), stored, records, events }
}

fn ensure(holds: bool, rule: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(rule()) }
}

/// The log keeps the laws, the rows follow from it, and code replays it.
fn judge_run(run: &Judged) -> Verdict {
    let review = review(&run.records).map_err(|violation| violation.to_string())?;
    ensure(review.closed, || format!("is open, with {:?} due at {:?}, rows {:?} {:?}", review.tasks, review.due_at, run.stored.tasks, run.stored.due_at))?;
    let (projection, mutable) = (run.state.projection(), &run.stored.row.mutable);
    let row = (mutable.status, mutable.closed_at, mutable.last_event, mutable.continued_as, mutable.sla_breached_at, mutable.paused_at);
    let expected = (projection.status, projection.closed_at, projection.last_event, run.state.continued_as(), projection.sla_breached_at, projection.paused_at);
    ensure(row == expected, || format!("its row says {row:?}"))?;
    ensure(run.stored.tasks.is_empty() && run.stored.due_at.is_none(), || "a closed run owes a task or a timer".to_owned())?;
    let mut code = Code::new();
    code.feed(run.events.clone())?;
    code.drive().map_err(|error| format!("does not replay: {error}"))
}

/// What its owner has in memory is what its records say.
async fn judge_memory(world: &World, id: ExecutionId, run: &Judged) -> Verdict {
    let answer = world.insist(World::shard_of(id), || Operation::Describe(Target::Execution(id))).await;
    let Ok(Answer::Described(view)) = answer else { return Err(format!("{answer:?} instead of a view")) };
    let (live, fold) = (
        (view.status, view.last_event, view.closed_at, view.continued_as),
        (run.state.status(), run.state.last_event_id(), run.state.closed_at(), run.state.continued_as()),
    );
    ensure(live == fold && view.activities.is_empty(), || format!("its owner shows {live:?}, its records {fold:?}"))
}

fn judge_chains(runs: &BTreeMap<ExecutionId, Judged>) -> Verdict {
    for (id, first) in runs.iter().filter(|(id, run)| run.stored.row.first_execution_id == **id) {
        let (mut chain, mut next) = (vec![&first.records[..]], first.state.continued_as());
        while let Some(successor) = next {
            let run = runs.get(&successor).ok_or_else(|| format!("the chain of {id} ends at {successor}, which does not exist"))?;
            chain.push(&run.records);
            next = run.state.continued_as();
        }
        check_chain(&chain).map_err(|(number, violation)| format!("chain of {id}, run {number}: {violation}"))?;
    }
    Ok(())
}

async fn judge_tables(world: &World) -> Verdict {
    let shards: Vec<_> = World::shards().collect();
    for shard_id in &shards {
        let queues = world.store.backlog_queues(*shard_id).await.unwrap();
        ensure(queues.is_empty(), || format!("shard {shard_id} has tasks left in {queues:?}"))?;
        let outbox = world.store.outbox(*shard_id, 0, 10).await.unwrap();
        ensure(outbox.is_empty(), || format!("shard {shard_id} has messages left: {outbox:?}"))?;
    }
    let due = world.store.due(&shards, Timestamp::from_millis(i64::MAX), 10).await.unwrap();
    ensure(due.is_empty(), || format!("deadlines are left: {due:?}"))
}

/// Everything that anybody was told is so.
fn judge_promises(world: &World, runs: &BTreeMap<ExecutionId, Judged>) -> Verdict {
    let ledger = world.ledger();
    if let Some(violation) = ledger.violations.first() {
        return Err(violation.clone());
    }
    for id in ledger.started.iter().chain(ledger.by_request.values()) {
        ensure(runs.contains_key(id), || format!("run {id} was acknowledged and does not exist"))?;
    }
    for (id, seen) in &ledger.seen {
        let last = runs.get(id).map_or(EventId(0), |run| run.state.last_event_id());
        ensure(last >= *seen, || format!("run {id} was seen at event {seen} and has {last}"))?;
    }
    for (id, outcome) in &ledger.outcomes {
        let now = runs.get(id).and_then(|run| run.state.outcome());
        ensure(now == Some(outcome), || format!("run {id} was said to have ended with {outcome:?}; it ended with {now:?}"))?;
    }
    for ((id, activity), begun) in &ledger.begun_once {
        ensure(*begun <= 1, || format!("activity {activity} of run {id} may run once and was begun {begun} times"))?;
    }
    let told = Told::of(runs)?;
    for (text, id) in &ledger.signals {
        ensure(told.signals.contains_key(text), || format!("signal {text} to {id} was acknowledged and is lost"))?;
    }
    for text in &ledger.refused_signals {
        ensure(!told.signals.contains_key(text), || format!("signal {text} was refused and is there"))?;
    }
    let lost = ledger.recorded.difference(&told.outputs).next();
    ensure(lost.is_none(), || format!("output {lost:?} was acknowledged and is lost"))?;
    let invented = told.outputs.difference(&ledger.produced).next();
    ensure(invented.is_none(), || format!("output {invented:?} was never produced"))?;
    let lost = ledger.decided.difference(&told.decisions).next();
    ensure(lost.is_none(), || format!("decision {lost:?} was acknowledged and is lost"))
}

/// What the histories hold of what clients and workers sent.
#[derive(Default)]
struct Told {
    /// In which runs of its chain each signal is.
    signals: BTreeMap<String, BTreeSet<ExecutionId>>,
    outputs: BTreeSet<String>,
    decisions: BTreeSet<String>,
}

impl Told {
    fn of(runs: &BTreeMap<ExecutionId, Judged>) -> Result<Self, String> {
        let mut told = Self::default();
        for (id, run) in runs {
            for event in &run.events {
                told.read(*id, &event.kind)?;
            }
        }
        Ok(told)
    }

    fn read(&mut self, id: ExecutionId, kind: &EventKind) -> Verdict {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match kind {
            EventKind::SignalReceived { payload, .. } => {
                let text = text(&payload.data);
                let new = self.signals.entry(text.clone()).or_default().insert(id);
                ensure(new, || format!("signal {text} is twice in run {id}"))
            }
            EventKind::ActivityCompleted { output, .. } => {
                let text = text(&output.data);
                ensure(self.outputs.insert(text.clone()), || format!("output {text} is recorded twice"))
            }
            EventKind::WorkflowTaskCompleted(completed) => {
                let new = self.decisions.insert(completed.build_id.clone());
                ensure(new, || format!("decision {} is recorded twice", completed.build_id))
            }
            _ => Ok(()),
        }
    }
}
