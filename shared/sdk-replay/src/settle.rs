//! Comparing what the code asked for with what the history has, and learning event ids from it.

use crate::error::ReplayError;
use crate::history::RecordedDecision;
use crate::item::{ItemKind, Stage};
use crate::machine::{Current, Machine};
use crate::matching::{describe_command, describe_event, matches};
use harvest_ids::EventId;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::{Event, EventKind};

/// Failures that the engine appends to a decision on its own.
const ENGINE_FAILURES: [&str; 4] = ["HistoryCapExceeded", "HistoryBytesCapExceeded", "HandlerPanic", "PayloadTooLarge"];

impl Machine {
    /// The code is at rest: compares its commands with the recorded ones.
    pub(crate) fn settle(&mut self, decision: &RecordedDecision) -> Result<(), ReplayError> {
        let asked: Vec<_> = std::mem::take(&mut self.slots).into_iter().filter_map(|slot| Some((slot.command?, slot.handle))).collect();
        let mut recorded = decision.commands.iter();
        for (command, handle) in asked {
            match recorded.next() {
                Some(event) if matches(&command, &event.kind) => {
                    if let EventKind::MarkerRecorded { name, details } = &event.kind {
                        self.markers.insert(name.clone(), details.clone());
                    }
                    if let Some(handle) = handle {
                        self.bind(handle, event.id);
                    }
                }
                Some(event) => return self.fail(event.id, describe_event(&event.kind), describe_command(&command)),
                None => return self.fail(decision.id, "no further command in this decision".to_owned(), describe_command(&command)),
            }
        }
        if let Some(event) = recorded.next()
            && !ended_by_engine(event)
        {
            return self.fail(event.id, describe_event(&event.kind), "nothing more in this decision".to_owned());
        }
        if self.consumed_signals != decision.completed.consumed_signals {
            let expected = format!("signals of events {:?} taken", ids(&decision.completed.consumed_signals));
            let actual = format!("signals of events {:?} taken", ids(&self.consumed_signals));
            return self.fail(decision.id, expected, actual);
        }
        Ok(())
    }

    fn fail(&mut self, event_id: EventId, expected: String, actual: String) -> Result<(), ReplayError> {
        self.diverge(event_id, expected, actual);
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// The server recorded the item as this event.
    fn bind(&mut self, handle: crate::Handle, event: EventId) {
        let Some(item) = self.items.get_mut(&handle) else { return };
        match item.stage {
            Stage::Asked(_) => {
                if item.kind == ItemKind::Local {
                    return; // its worker died before it ended, or the code let it go: nothing of it comes after its decision
                }
                item.stage = Stage::Open { event, cancel_requested: false };
                if item.kind == ItemKind::Detached {
                    if item.abandoned {
                        self.items.remove(&handle);
                    }
                } else {
                    self.by_event.insert(event, handle);
                }
            }
            Stage::Open { .. } | Stage::Ended(_) => {}
        }
    }

    /// The decision that was submitted last must be the next one in the history, as it was submitted.
    pub(crate) fn resolve_submitted(&mut self) -> Result<(), ReplayError> {
        if !matches!(self.current, Current::Submitted) {
            return Ok(());
        }
        match self.history.decisions.pop_front() {
            Some(decision) if decision.completed.seen == self.seen && self.same_values(&decision) => {
                self.current = Current::None;
                self.settle(&decision)
            }
            Some(decision) => Err(ReplayError::NotOurs { event_id: decision.id }),
            None => Err(ReplayError::Malformed { event_id: self.history.last, message: "a task was given although the last one is not recorded".to_owned() }),
        }
    }
}

impl Machine {
    /// Whether the values that the code took from outside are the recorded ones: another worker may have made the same decision with
    /// other values, and this code has seen its own.
    fn same_values(&self, decision: &RecordedDecision) -> bool {
        let taken = self.slots.iter().filter_map(|slot| match &slot.command {
            Some(Command::RecordSideEffect { value, .. } | Command::CompleteLocalActivity { output: value, .. }) => Some(value),
            _ => None,
        });
        let recorded = decision.commands.iter().filter_map(|event| match &event.kind {
            EventKind::SideEffectRecorded { value, .. } | EventKind::LocalActivityCompleted { output: value, .. } => Some(value),
            _ => None,
        });
        taken.eq(recorded)
    }
}

/// Whether the engine, not the code, ended the run here.
fn ended_by_engine(event: &Event) -> bool {
    matches!(&event.kind, EventKind::WorkflowFailed { failure } if ENGINE_FAILURES.contains(&failure.error_type.as_str()))
}

fn ids(events: &[EventId]) -> Vec<u64> {
    events.iter().map(|event| event.0).collect()
}
