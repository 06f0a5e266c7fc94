//! What is counted when a batch commits: each fact once, and only when it is durable.

use super::operation::BusinessKey;
use harvest_ids::Timestamp;
use harvest_runtime::metrics;
use harvest_workflow_core::event::{EventKind, WorkflowTimeout};
use harvest_workflow_core::record::{Control, Record, WorkflowTaskFailure};
use harvest_workflow_core::state::Status;

/// One countable fact of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    Started,
    Closed(Status),
    TimedOut(WorkflowTimeout),
    Signal,
    TimerStarted,
    Blocked,
    Panicked,
    SlaBreached,
}

/// The facts among records of a run whose state is now `status`.
pub(crate) fn of_records(records: &[Record], status: Status) -> Vec<Fact> {
    let mut facts = Vec::new();
    for record in records {
        match record {
            Record::Event(event) => match &event.kind {
                EventKind::WorkflowStarted(_) => facts.push(Fact::Started),
                EventKind::SignalReceived { .. } => facts.push(Fact::Signal),
                EventKind::TimerStarted { .. } => facts.push(Fact::TimerStarted),
                EventKind::WorkflowExecutionTimedOut { timeout } => facts.extend([Fact::Closed(status), Fact::TimedOut(*timeout)]),
                EventKind::WorkflowCompleted { .. }
                | EventKind::WorkflowFailed { .. }
                | EventKind::WorkflowCancelled { .. }
                | EventKind::WorkflowTerminated { .. }
                | EventKind::WorkflowContinuedAsNew { .. } => facts.push(Fact::Closed(status)),
                _ => {}
            },
            Record::Control(Control::WorkflowTaskFailed { cause: WorkflowTaskFailure::NonDeterminism { .. }, .. }) => facts.push(Fact::Blocked),
            Record::Control(Control::WorkflowTaskFailed { cause: WorkflowTaskFailure::Panicked { .. }, .. }) => facts.push(Fact::Panicked),
            Record::Control(Control::SlaBreached { .. }) => facts.push(Fact::SlaBreached),
            Record::Control(_) => {}
        }
    }
    facts
}

/// Counts a committed fact.
pub(crate) fn count(fact: Fact, key: &BusinessKey, queue: &str, started_at: Timestamp, now: Timestamp) {
    let workflow = key.workflow_type.as_str();
    match fact {
        Fact::Started => metrics::WORKFLOW_STARTED.add(1, [workflow, queue]),
        Fact::Closed(status) => {
            let outcome = status.as_str().to_lowercase();
            metrics::WORKFLOW_TERMINAL.add(1, [workflow, queue, &outcome]);
            metrics::WORKFLOW_DURATION.record_duration(now.since(started_at), [workflow, queue, &outcome]);
            match status {
                Status::ContinuedAsNew => metrics::WORKFLOW_CONTINUE_AS_NEW.add(1, [workflow]),
                Status::Running | Status::TimedOut | Status::Completed | Status::Failed | Status::Cancelled | Status::Terminated => {}
            }
        }
        Fact::TimedOut(WorkflowTimeout::Execution) => metrics::WORKFLOW_TIMEOUT.add(1, [workflow, queue]),
        Fact::TimedOut(WorkflowTimeout::Chain) => metrics::WORKFLOW_CHAIN_TIMEOUT.add(1, [workflow, queue]),
        Fact::Signal => metrics::SIGNAL_RECEIVED.add(1, [workflow, queue]),
        Fact::TimerStarted => metrics::TIMER_STARTED.add(1, []),
        Fact::Blocked => metrics::WORKFLOW_NONDETERMINISTIC_BLOCK.add(1, [workflow, queue]),
        Fact::SlaBreached => metrics::WORKFLOW_SLA_BREACHED.add(1, [workflow, queue]),
        Fact::Panicked => metrics::WORKFLOW_PANIC.add(1, [workflow, queue]),
    }
}
