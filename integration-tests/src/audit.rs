//! After a test: every record log of a tenant against the oracle, against the rows beside it, and against the code.

use crate::store::Stores;
use anyhow::Context as _;
use harvest_ids::ExecutionId;
use harvest_persistence::store::StoredRun;
use harvest_sdk::{WorkflowRegistration, WorkflowReplayer};
use harvest_wire::{event, records};
use harvest_workflow_core::event::{Event, EventKind};
use harvest_workflow_core::oracle;
use harvest_workflow_core::record::Record;
use harvest_workflow_core::state::Status;
use std::collections::BTreeMap;

/// One run as stored, decoded.
pub struct RunLog {
    /// The rows.
    pub stored: StoredRun,
    /// All records in order.
    pub records: Vec<Record>,
}

impl RunLog {
    /// The run.
    pub fn execution_id(&self) -> ExecutionId {
        self.stored.row.execution_id
    }

    /// Its events in order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.records.iter().filter_map(|record| match record {
            Record::Event(event) => Some(event),
            Record::Control(_) => None,
        })
    }
}

/// Every run of a tenant.
///
/// # Errors
/// When the store cannot be read or a record cannot be decoded.
pub async fn logs(stores: &Stores, namespace: &str) -> anyhow::Result<Vec<RunLog>> {
    let runs = stores.runs(namespace).await?;
    runs.into_iter().map(|stored| Ok(RunLog { records: decode(&stored)?, stored })).collect()
}

fn decode(stored: &StoredRun) -> anyhow::Result<Vec<Record>> {
    let mut all = Vec::new();
    for row in &stored.records {
        all.extend(records::decode(row).with_context(|| format!("records of {}", stored.row.execution_id))?);
    }
    Ok(all)
}

/// Holds every log against the oracle: alone, with its rows, in its chain, and with its parent.
///
/// # Errors
/// The first violation, naming the run.
pub fn check(logs: &[RunLog]) -> anyhow::Result<()> {
    let by_id: BTreeMap<ExecutionId, &RunLog> = logs.iter().map(|log| (log.execution_id(), log)).collect();
    for log in logs {
        check_run(log).with_context(|| format!("run {} ({} {})", log.execution_id(), log.stored.row.workflow_type, log.stored.row.workflow_id))?;
        check_children(log, &by_id).with_context(|| format!("children of run {}", log.execution_id()))?;
    }
    for first in logs.iter().filter(|log| log.stored.row.first_execution_id == log.execution_id()) {
        let mut chain = vec![first];
        while let Some(next) = chain.last().and_then(|log| log.stored.row.mutable.continued_as) {
            chain.push(by_id.get(&next).with_context(|| format!("the successor {next} of chain {} is not there", first.execution_id()))?);
        }
        let records: Vec<&[Record]> = chain.iter().map(|log| log.records.as_slice()).collect();
        oracle::check_chain(&records).map_err(|(run, violation)| anyhow::anyhow!("chain of {}, run {run}: {violation}", first.execution_id()))?;
    }
    Ok(())
}

/// The oracle's view of the log against the rows that are written beside it.
fn check_run(log: &RunLog) -> anyhow::Result<()> {
    let review = oracle::review(&log.records)?;
    let row = &log.stored.row.mutable;
    anyhow::ensure!(review.last_event == row.last_event, "the log ends at event {}, the row says {}", review.last_event, row.last_event);
    anyhow::ensure!(review.closed == (row.status != Status::Running), "the log says closed = {}, the row says {:?}", review.closed, row.status);
    let tasks: Vec<_> = log.stored.tasks.iter().map(|task| task.task.key).collect();
    let mut expected: Vec<_> = review.tasks.keys().copied().collect();
    let mut found = tasks;
    expected.sort_unstable();
    found.sort_unstable();
    anyhow::ensure!(expected == found, "the log owes the tasks {expected:?}, the task rows are {found:?}");
    anyhow::ensure!(review.due_at == log.stored.due_at, "the log's next deadline is {:?}, the due row says {:?}", review.due_at, log.stored.due_at);
    Ok(())
}

/// An awaited child's outcome in its parent's log is the outcome of the child's own chain.
fn check_children(log: &RunLog, by_id: &BTreeMap<ExecutionId, &RunLog>) -> anyhow::Result<()> {
    let mut children = BTreeMap::new();
    for event in log.events() {
        match &event.kind {
            EventKind::ChildWorkflowStarted { child } => _ = children.insert(event.id, child.execution_id),
            EventKind::ChildWorkflowCompleted { started, output } => {
                let child = children.get(started).with_context(|| format!("event {} answers no child", event.id))?;
                let mut end = by_id.get(child).with_context(|| format!("child {child} is not there"))?;
                while let Some(next) = end.stored.row.mutable.continued_as {
                    end = by_id.get(&next).with_context(|| format!("run {next} is not there"))?;
                }
                let same = matches!(end.events().last().map(|event| &event.kind), Some(EventKind::WorkflowCompleted { output: own }) if own == output);
                anyhow::ensure!(same, "event {} has another result than child {child}", event.id);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Replays every log of a known type against its code.
///
/// # Errors
/// The first history that does not fit, naming the run.
pub fn replay(logs: &[RunLog], workflows: &[WorkflowRegistration]) -> anyhow::Result<()> {
    let replayer = WorkflowReplayer::new().workflows(workflows.iter().cloned());
    for log in logs {
        let workflow_type = log.stored.row.workflow_type.as_str();
        if !workflows.iter().any(|workflow| workflow.name() == workflow_type) {
            continue;
        }
        let events = log.events().map(event::to_proto).collect();
        replayer.replay(events).with_context(|| format!("replay of {} ({workflow_type} {})", log.execution_id(), log.stored.row.workflow_id))?;
    }
    Ok(())
}
