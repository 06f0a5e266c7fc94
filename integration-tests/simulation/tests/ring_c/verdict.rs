//! The judgement: what the database holds against the laws, and against the histories of clients and of the world outside.

use crate::ledger::{Ending, Ledger};
use crate::program;
use crate::world::{World, inline};
use harvest_ids::{ExecutionId, Namespace, Timestamp};
use harvest_integration_tests::audit::{self, RunLog};
use harvest_persistence::control::DirectoryStore as _;
use harvest_persistence::store::{RunFilter, ShardStore as _};
use harvest_wire::records;
use harvest_workflow_core::event::{EventKind, WorkflowStarted};
use harvest_workflow_core::oracle;
use harvest_workflow_core::record::{Control, Record, WorkflowTaskFailure};
use harvest_workflow_core::state::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// Runs of a simulation at most.
const MOST: u32 = 10_000;

fn list(world: &World, status: Option<Status>) -> anyhow::Result<Vec<ExecutionId>> {
    let filter = RunFilter { status, limit: MOST, ..RunFilter::all(Namespace::default()) };
    Ok(inline(world.store.list(&filter))?.into_iter().map(|row| row.execution_id).collect())
}

/// Whether all clients have finished, no run is open and no message is on its way.
pub fn is_at_rest(world: &World) -> anyhow::Result<bool> {
    if world.busy_clients.load(Ordering::Relaxed) > 0 || !list(world, Some(Status::Running))?.is_empty() {
        return Ok(false);
    }
    for shard_id in World::shards() {
        if !inline(world.store.outbox(shard_id, 0, 1))?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is not at rest, for the message about a simulation that hangs.
pub fn what_hangs(world: &World) -> anyhow::Result<String> {
    let mut hanging = format!("{} clients are busy", world.busy_clients.load(Ordering::Relaxed));
    for log in logs(world)?.iter().filter(|log| log.stored.row.mutable.status == Status::Running) {
        let last: Vec<_> = log.records.iter().rev().take(4).collect();
        hanging.push_str(&format!(
            "\nrun {} {}, due at {:?}, tasks {:?}, last records {last:?}",
            log.execution_id(),
            log.stored.row.workflow_id,
            log.stored.due_at,
            log.stored.tasks
        ));
    }
    for shard_id in World::shards() {
        hanging.push_str(&format!("\nmessages of shard {shard_id}: {:?}", inline(world.store.outbox(shard_id, 0, 10))?));
    }
    Ok(hanging)
}

fn logs(world: &World) -> anyhow::Result<Vec<RunLog>> {
    let (_, slots) = inline(world.store.slot_map())?;
    let mut logs = Vec::new();
    for id in list(world, None)? {
        let shard_id = slots[usize::from(id.slot().number())];
        let Some(stored) = inline(world.store.load_run(shard_id, id))? else { anyhow::bail!("run {id} is listed and cannot be loaded") };
        let mut all = Vec::new();
        for row in &stored.records {
            all.extend(records::decode(row)?);
        }
        logs.push(RunLog { stored, records: all });
    }
    Ok(logs)
}

/// Judges everything. Returns how many runs there were.
///
/// # Errors
/// The first thing that is wrong.
pub fn judge(world: &World) -> anyhow::Result<usize> {
    if let Some(violation) = world.ledger().violations.first() {
        anyhow::bail!("{violation}");
    }
    let logs = logs(world)?;
    audit::check(&logs)?;
    for log in &logs {
        anyhow::ensure!(oracle::review(&log.records)?.closed, "run {} is open", log.execution_id());
        if let Some(cause) = log.records.iter().find_map(code_failed) {
            anyhow::bail!("run {}: a workflow task failed: {cause:?}", log.execution_id());
        }
    }
    audit::replay(&logs, &program::workflows())?;
    judge_tables(world)?;
    let told = Told::of(&logs)?;
    judge_clients(&world.ledger(), &told)?;
    judge_effects(&world.ledger(), &told)?;
    Ok(logs.len())
}

/// The code of this simulation neither panics nor changes.
fn code_failed(record: &Record) -> Option<&WorkflowTaskFailure> {
    match record {
        Record::Control(Control::WorkflowTaskFailed { cause, .. })
            if matches!(cause, WorkflowTaskFailure::NonDeterminism { .. } | WorkflowTaskFailure::Panicked { .. }) =>
        {
            Some(cause)
        }
        _ => None,
    }
}

/// Closed runs owe nothing.
fn judge_tables(world: &World) -> anyhow::Result<()> {
    let shards: Vec<_> = World::shards().collect();
    for shard_id in &shards {
        let queues = inline(world.store.backlog_queues(*shard_id))?;
        anyhow::ensure!(queues.is_empty(), "shard {shard_id} has tasks left in {queues:?}");
        let outbox = inline(world.store.outbox(*shard_id, 0, 10))?;
        anyhow::ensure!(outbox.is_empty(), "shard {shard_id} has messages left: {outbox:?}");
    }
    let due = inline(world.store.due(&shards, Timestamp::from_millis(i64::MAX), 10))?;
    anyhow::ensure!(due.is_empty(), "deadlines are left: {due:?}");
    Ok(())
}

/// What the histories hold of what clients and workers sent.
#[derive(Default)]
struct Told {
    /// Of each run its business key, its last event, and its successor.
    runs: BTreeMap<String, (String, u64, Option<String>)>,
    /// Runs that begin a chain, by the request id of their start.
    requests: BTreeMap<String, Vec<String>>,
    /// In which runs each signal is.
    signals: BTreeMap<String, BTreeSet<String>>,
    outputs: BTreeSet<String>,
    endings: BTreeMap<String, Ending>,
}

impl Told {
    fn of(logs: &[RunLog]) -> anyhow::Result<Self> {
        let mut told = Self::default();
        for log in logs {
            let next = log.stored.row.mutable.continued_as.map(|id| id.to_string());
            let row = &log.stored.row;
            told.runs.insert(log.execution_id().to_string(), (row.workflow_id.to_string(), row.mutable.last_event.0, next));
            for event in log.events() {
                told.read(&log.execution_id().to_string(), &event.kind)?;
            }
        }
        Ok(told)
    }

    fn read(&mut self, id: &str, kind: &EventKind) -> anyhow::Result<()> {
        let ending = match kind {
            EventKind::WorkflowStarted(started) => return self.read_start(id, started),
            EventKind::SignalReceived { payload, .. } => {
                let text: String = serde_json::from_slice(&payload.data)?;
                anyhow::ensure!(self.signals.entry(text.clone()).or_default().insert(id.to_owned()), "signal {text} is twice in run {id}");
                return Ok(());
            }
            EventKind::ActivityCompleted { output, .. } => {
                let text: String = serde_json::from_slice(&output.data)?;
                anyhow::ensure!(self.outputs.insert(text.clone()), "output {text} is recorded twice");
                return Ok(());
            }
            EventKind::WorkflowCompleted { output } => Ending::Completed(serde_json::from_slice(&output.data)?),
            EventKind::WorkflowFailed { failure } => Ending::Failed(failure.error_type.to_string()),
            EventKind::WorkflowCancelled { .. } => Ending::Cancelled,
            EventKind::WorkflowTerminated { .. } => Ending::Terminated,
            EventKind::WorkflowExecutionTimedOut { .. } => Ending::TimedOut,
            _ => return Ok(()),
        };
        self.endings.insert(id.to_owned(), ending);
        Ok(())
    }

    fn read_start(&mut self, id: &str, started: &WorkflowStarted) -> anyhow::Result<()> {
        if let (Some(request), None) = (&started.request_id, started.continued_from) {
            self.requests.entry(request.to_string()).or_default().push(id.to_owned());
        }
        Ok(())
    }

    /// The last run of a run's chain.
    fn last(&self, id: &str) -> String {
        let mut last = id.to_owned();
        while let Some((_, _, Some(next))) = self.runs.get(&last) {
            last = next.clone();
        }
        last
    }
}

/// Nothing that a client was told is otherwise, and nothing that it asked for happened twice.
fn judge_clients(ledger: &Ledger, told: &Told) -> anyhow::Result<()> {
    for (request, runs) in &told.requests {
        anyhow::ensure!(runs.len() == 1, "{request} made {runs:?}");
    }
    for (request, started) in &ledger.starts {
        let key = told.runs.get(&started.execution_id).map(|(key, _, _)| key);
        anyhow::ensure!(key == Some(&started.workflow_id), "{request} was acknowledged as {started:?}, which does not exist");
        let made = told.requests.get(request).and_then(|runs| runs.first());
        anyhow::ensure!(!started.fresh || made == Some(&started.execution_id), "{request} was acknowledged as {started:?} and made {made:?}");
    }
    for (text, run) in &ledger.signals {
        anyhow::ensure!(told.signals.contains_key(text), "signal {text} to {run} was acknowledged and is lost");
    }
    for text in &ledger.refused_signals {
        anyhow::ensure!(!told.signals.contains_key(text), "signal {text} was refused and is there");
    }
    for (run, seen) in &ledger.seen {
        let last = told.runs.get(run).map_or(0, |(_, last, _)| *last);
        anyhow::ensure!(last >= *seen, "run {run} was shown at event {seen} and has {last}");
    }
    for (run, ending) in &ledger.endings {
        let recorded = told.endings.get(&told.last(run));
        anyhow::ensure!(recorded == Some(ending), "run {run} was said to have ended with {ending:?}; it ended with {recorded:?}");
    }
    Ok(())
}

/// Every recorded output was made outside, and what may happen once did not happen twice.
fn judge_effects(ledger: &Ledger, told: &Told) -> anyhow::Result<()> {
    for (key, effect) in &ledger.effects {
        let once = effect.max_attempts != 1 || effect.begun.len() <= 1;
        anyhow::ensure!(once, "{key} may be attempted once and began {:?}", effect.begun);
        let known = effect.begun.iter().all(|attempt| (1..=effect.max_attempts).contains(attempt));
        anyhow::ensure!(known, "{key} may be attempted {} times and began {:?}", effect.max_attempts, effect.begun);
    }
    let invented = told.outputs.difference(&ledger.produced).next();
    anyhow::ensure!(invented.is_none(), "output {invented:?} was never made");
    Ok(())
}
