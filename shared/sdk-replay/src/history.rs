//! Events that were fed and not yet applied, split into news and recorded decisions.

use crate::error::FeedError;
use harvest_ids::{EventId, Timestamp};
use harvest_workflow_core::event::{Event, EventKind, WorkflowTaskCompleted};
use std::collections::VecDeque;

/// A decision that the history has.
#[derive(Debug, Clone)]
pub(crate) struct RecordedDecision {
    /// The event id of its `WorkflowTaskCompleted`.
    pub(crate) id: EventId,
    /// What the worker said about it.
    pub(crate) completed: WorkflowTaskCompleted,
    /// One event per command, in order.
    pub(crate) commands: Vec<Event>,
}

/// Fed events in order.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// What code observes, in order.
    pub(crate) news: VecDeque<Event>,
    /// Decisions, in order.
    pub(crate) decisions: VecDeque<RecordedDecision>,
    /// Command events that come now belong to the last decision.
    collecting: bool,
    /// The last event fed.
    pub(crate) last: EventId,
    /// The time of the newest event fed.
    pub(crate) last_at: Timestamp,
}

/// What an event is to a replay.
enum Role {
    /// Code observes it.
    News,
    /// It is what a command of code became.
    Command,
    /// It marks a decision.
    Decision,
    /// The run was ended from outside: nothing observes it.
    Outside,
}

fn role(kind: &EventKind) -> Role {
    match kind {
        EventKind::WorkflowTaskCompleted(_) => Role::Decision,
        EventKind::WorkflowStarted(_)
        | EventKind::WorkflowCancelRequested { .. }
        | EventKind::ActivityCompleted { .. }
        | EventKind::ActivityFailed { .. }
        | EventKind::ActivityTimedOut { .. }
        | EventKind::ActivityCancelled { .. }
        | EventKind::TimerFired { .. }
        | EventKind::SignalReceived { .. }
        | EventKind::ChildWorkflowCompleted { .. }
        | EventKind::ChildWorkflowFailed { .. } => Role::News,
        EventKind::WorkflowTerminated { .. } | EventKind::WorkflowExecutionTimedOut { .. } => Role::Outside,
        EventKind::WorkflowCompleted { .. }
        | EventKind::WorkflowFailed { .. }
        | EventKind::WorkflowCancelled { .. }
        | EventKind::WorkflowContinuedAsNew { .. }
        | EventKind::ActivityScheduled(_)
        | EventKind::ActivityCancelRequested { .. }
        | EventKind::TimerStarted { .. }
        | EventKind::TimerCancelled { .. }
        | EventKind::SideEffectRecorded { .. }
        | EventKind::MarkerRecorded { .. }
        | EventKind::LocalActivityScheduled { .. }
        | EventKind::LocalActivityCompleted { .. }
        | EventKind::LocalActivityFailed { .. }
        | EventKind::LocalActivityExhausted { .. }
        | EventKind::ChildWorkflowStarted { .. }
        | EventKind::ChildWorkflowSpawnedDetached { .. }
        | EventKind::ChildWorkflowCancelRequested { .. } => Role::Command,
    }
}

impl History {
    /// Takes events; those it has already are skipped.
    pub(crate) fn feed(&mut self, events: impl IntoIterator<Item = Event>) -> Result<(), FeedError> {
        for event in events {
            if event.id <= self.last {
                continue;
            }
            if event.id != self.last.next() {
                return Err(FeedError::Gap { expected: self.last.next(), found: event.id });
            }
            self.push(event)?;
        }
        Ok(())
    }

    fn push(&mut self, event: Event) -> Result<(), FeedError> {
        let (id, at) = (event.id, event.at);
        if (id == EventId(1)) != matches!(event.kind, EventKind::WorkflowStarted(_)) {
            return Err(FeedError::Malformed { event_id: id, message: "WorkflowStarted is the first event and only that".to_owned() });
        }
        match role(&event.kind) {
            Role::News => {
                self.collecting = false;
                self.news.push_back(event);
            }
            Role::Outside => self.collecting = false,
            Role::Decision => {
                let EventKind::WorkflowTaskCompleted(completed) = event.kind else {
                    return Err(FeedError::Malformed { event_id: id, message: "not a decision".to_owned() });
                };
                if completed.seen >= id || self.decisions.back().is_some_and(|before| before.completed.seen > completed.seen) {
                    return Err(FeedError::Malformed { event_id: id, message: format!("the decision says it had seen event {}", completed.seen) });
                }
                self.collecting = true;
                self.decisions.push_back(RecordedDecision { id, completed, commands: Vec::new() });
            }
            Role::Command => match self.decisions.back_mut() {
                Some(decision) if self.collecting => decision.commands.push(event),
                // The engine itself fails a run whose tasks keep panicking: no decision asked for it.
                Some(_) | None if matches!(event.kind, EventKind::WorkflowFailed { .. }) => {}
                Some(_) | None => {
                    return Err(FeedError::Malformed { event_id: id, message: "the event of a command does not follow its decision".to_owned() });
                }
            },
        }
        self.last = id;
        self.last_at = self.last_at.max(at);
        Ok(())
    }

    /// The next news that a decision which has seen `seen` observes.
    pub(crate) fn next_news(&mut self, seen: EventId) -> Option<Event> {
        if self.news.front()?.id <= seen { self.news.pop_front() } else { None }
    }
}
