//! A worker has decided.

use super::Emitter;
use super::close::{close, note_breach};
use super::commands::{Planner, bounded_text, command_too_large, is_terminal};
use super::fail_workflow_task::failed;
use crate::command::Command;
use crate::decision::{Reject, Reply, Successor};
use crate::event::{EventKind, Parent, WorkflowStarted, WorkflowTaskCompleted};
use crate::input::{Carried, CarriedSignal, CompleteWorkflowTask, TaskToken};
use crate::machine::activity::ActivityPhase;
use crate::machine::workflow_task::WorkflowTask;
use crate::measure::event_bytes;
use crate::message::MessageBody;
use crate::payload::{Failure, Payload};
use crate::record::WorkflowTaskFailure;
use crate::state::State;
use harvest_ids::{ActivityId, Attempt, EventId, ExecutionId, TaskQueue, WorkerId, WorkflowType};
use std::collections::BTreeSet;

/// Closing decisions in a row that are sent back because news arrived meanwhile; the next one closes the run over it.
pub const MAX_UNSEEN_NEWS: u32 = 10;

/// The started workflow task that an answer is about.
pub(super) struct CurrentTask {
    pub(super) attempt: Attempt,
    pub(super) seen: EventId,
}

/// Checks that an answer comes from the dispatch that has the workflow task.
pub(super) fn current_task(state: &State, token: &TaskToken, worker_id: &WorkerId) -> Result<CurrentTask, Reject> {
    let stale = |reason| Err(Reject::StaleTask { reason });
    if state.started().is_none_or(|started| started.execution_id != token.execution_id) {
        return stale("the token is of another run");
    }
    if token.activity_id.is_some() {
        return stale("the token is of an activity");
    }
    match state.workflow_task() {
        WorkflowTask::Started { attempt, dispatch, seen, .. } => {
            if *attempt != token.attempt || *dispatch != token.dispatch {
                return stale("the workflow task was dispatched again");
            }
            if dispatch.worker_id != *worker_id {
                return stale("another worker session got this task");
            }
            Ok(CurrentTask { attempt: *attempt, seen: *seen })
        }
        WorkflowTask::None | WorkflowTask::Ready { .. } | WorkflowTask::Backoff { .. } => stale("the workflow task is not with a worker"),
    }
}

pub(super) fn complete_workflow_task(emitter: &mut Emitter<'_>, task: &CompleteWorkflowTask) -> Result<Reply, Reject> {
    let current = current_task(emitter.state, &task.token, &task.worker_id)?;
    check_consumed(emitter.state, &task.consumed_signals, current.seen)?;
    let seed = emitter.random();
    let events = Planner::new(emitter, seed).plan(&task.commands)?;

    // Refusing these bytes would get them again for ever: the code gives them whenever it is asked.
    let too_large = command_too_large(&task.commands, emitter.limits);
    let closes = events.last().is_some_and(is_terminal);
    let continues = matches!(events.last(), Some(EventKind::WorkflowContinuedAsNew { .. }));
    let ends = too_large.is_some() || (closes && !continues);
    if ends && has_unseen_news(emitter.state, current.seen) && emitter.state.deciding.unseen_news < MAX_UNSEEN_NEWS {
        failed(emitter, current.attempt, WorkflowTaskFailure::UnseenNews);
        return Ok(Reply::TryAgain);
    }
    let completed = EventKind::WorkflowTaskCompleted(WorkflowTaskCompleted {
        worker_id: task.worker_id.clone(),
        build_id: bounded_text(&task.build_id),
        sdk: bounded_text(&task.sdk),
        seen: current.seen,
        consumed_signals: task.consumed_signals.clone(),
    });
    let broken = too_large.or_else(|| if closes { None } else { beyond_cap(emitter, &completed, &events) });
    if let Some(failure) = broken {
        close(emitter, EventKind::WorkflowFailed { failure });
        return Ok(Reply::Done);
    }
    if closes {
        note_breach(emitter); // nothing may come between a decision and its commands
    }
    emitter.event(completed);
    let mut cancelled = BTreeSet::new();
    for event in events {
        perform(emitter, event, &task.commands, current.seen, &mut cancelled);
    }
    if !closes {
        for activity_id in cancelled {
            emitter.event(EventKind::ActivityCancelled { activity_id });
        }
    }
    Ok(Reply::Done)
}

/// A decision can only have taken signals that it was given and that no decision took before it.
fn check_consumed(state: &State, consumed: &[EventId], seen: EventId) -> Result<(), Reject> {
    let mut sorted = consumed.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Reject::BadDecision { message: format!("signal {} is consumed twice", pair[0]) });
    }
    match sorted.iter().find(|id| **id > seen || !state.signals.contains_key(id)) {
        Some(id) => Err(Reject::BadDecision { message: format!("event {id} is no unread signal among the {seen} events that the task was given") }),
        None => Ok(()),
    }
}

/// Whether a sender was told of success for something that this decision cannot have seen.
fn has_unseen_news(state: &State, seen: EventId) -> bool {
    let signal = state.signals.last_key_value().is_some_and(|(id, _)| *id > seen);
    signal || state.cancel_requested().is_some_and(|cancel| cancel.event > seen)
}

/// Why the history would be too long with this decision in it. Decisions that end the run are exempt: they bound it.
fn beyond_cap(emitter: &Emitter<'_>, completed: &EventKind, events: &[EventKind]) -> Option<Failure> {
    let limits = emitter.limits;
    let count = u64::try_from(events.len()).unwrap_or(u64::MAX).saturating_add(emitter.state.last_event_id().0).saturating_add(1);
    if count > limits.max_history_events {
        let message = format!("the history would have {count} events; at most {} are allowed (max_history_events)", limits.max_history_events);
        return Some(Failure::engine("HistoryCapExceeded", message));
    }
    let new_bytes = events.iter().map(event_bytes).fold(event_bytes(completed), u64::saturating_add);
    let bytes = emitter.state.history_bytes().saturating_add(new_bytes);
    if bytes > limits.max_history_bytes {
        let message = format!("the history would have {bytes} bytes; at most {} are allowed (max_history_bytes)", limits.max_history_bytes);
        return Some(Failure::engine("HistoryBytesCapExceeded", message));
    }
    None
}

/// Appends one command's event with what follows from it outside the run. `cancelled` collects waiting activities that end by it.
fn perform(emitter: &mut Emitter<'_>, event: EventKind, commands: &[Command], seen: EventId, cancelled: &mut BTreeSet<ActivityId>) {
    match event {
        EventKind::ActivityCancelRequested { activity_id } => {
            let waiting = emitter.state.activity(activity_id).is_some_and(|activity| !matches!(activity.phase(), ActivityPhase::Running { .. }));
            if waiting {
                cancelled.insert(activity_id);
            }
            emitter.event(event);
        }
        EventKind::ChildWorkflowStarted { ref child } => {
            let child = child.clone();
            let initiated = emitter.event(event);
            send_start(emitter, child, initiated, false);
        }
        EventKind::ChildWorkflowSpawnedDetached { ref child } => {
            let child = child.clone();
            let initiated = emitter.event(event);
            send_start(emitter, child, initiated, true);
        }
        EventKind::ChildWorkflowCancelRequested { started } => {
            let target = emitter.state.children.get(&started).and_then(|child| child.cancel_target());
            emitter.event(event);
            if let Some(target) = target {
                emitter.message(target, MessageBody::CancelChild { reason: "the parent asked for it".to_owned() });
            }
        }
        EventKind::WorkflowContinuedAsNew { new_execution_id, ref new_workflow_type, ref input } => {
            let queue = match commands.last() {
                Some(Command::ContinueAsNew { task_queue, .. }) => task_queue.clone(),
                _ => None,
            };
            let successor = successor(emitter, new_execution_id, new_workflow_type.clone(), queue, input.clone(), seen);
            close(emitter, event);
            emitter.succeed(successor);
        }
        event if is_terminal(&event) => close(emitter, event),
        event => {
            emitter.event(event);
        }
    }
}

fn send_start(emitter: &mut Emitter<'_>, child: crate::event::ChildWorkflow, initiated: EventId, detached: bool) {
    let Some(mine) = emitter.state.started() else { return };
    let parent = Parent { execution_id: mine.execution_id, initiated, detached };
    let (namespace, workflow_task_timeout) = (mine.namespace.clone(), mine.workflow_task_timeout);
    emitter.message(child.execution_id, MessageBody::StartChild { namespace, child: Box::new(child), parent, workflow_task_timeout });
}

/// The next run of the chain: everything that this one was and everything accepted that it has not seen or taken.
fn successor(
    emitter: &Emitter<'_>,
    id: ExecutionId,
    workflow_type: Option<WorkflowType>,
    queue: Option<TaskQueue>,
    input: Payload,
    seen: EventId,
) -> Successor {
    let state = &*emitter.state;
    let mine = state.started().expect("a run that continues exists");
    let mut started: WorkflowStarted = mine.clone();
    started.execution_id = id;
    started.continued_from = Some(mine.execution_id);
    started.config_version = emitter.config_version;
    started.input = input;
    if let Some(workflow_type) = workflow_type.filter(|to| *to != mine.workflow_type) {
        // Other code has other limits: its own, not those of the run so far.
        let declared = emitter.types.workflows.get(&workflow_type).cloned().unwrap_or_default();
        (started.execution_timeout, started.sla) = (declared.execution_timeout, declared.sla);
        started.workflow_type = workflow_type;
    }
    if let Some(queue) = queue {
        started.task_queue = queue;
    }
    let signals = state.signals.values().map(|signal| CarriedSignal {
        name: signal.name.clone(),
        payload: signal.payload.clone(),
        request_id: signal.request_id.clone(),
    });
    let cancel = state.cancel_requested().filter(|cancel| cancel.event > seen);
    let carried = Carried {
        signals: signals.collect(),
        request_ids: state.requests.iter().cloned().collect(),
        cancel_requested: cancel.map(|cancel| cancel.reason.clone()),
        paused: state.pause().cloned(),
    };
    Successor { started, carried }
}
