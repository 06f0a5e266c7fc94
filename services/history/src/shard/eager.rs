//! Work in the answer to a worker's answer: activities that a decision schedules, and the decision that an activity's result leads to.
//!
//! Both save round trips, never rules: each step is decided by the core as if it had come alone, one after the other, and all of them are
//! in one commit. An eager activity is started like one that was taken; a decision ahead is a workflow task that is taken and completed
//! at once, and only when the worker had seen everything that the task would have shown it.

use super::Envelope;
use super::actor::Actor;
use super::operation::{Answer, EagerOperation, Given, Operation, Refusal, TakenActivityTask};
use harvest_ids::{ActivityId, EventId, ExecutionId, Timestamp, WorkerId};
use harvest_wire::worker::DecisionAhead;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::decision::Reply;
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::input::{CompleteWorkflowTask, Input, TaskToken};
use harvest_workflow_core::machine::activity::ActivityPhase;
use harvest_workflow_core::machine::workflow_task::WorkflowTask;
use harvest_workflow_core::record::Dispatch;
use std::collections::BTreeSet;

/// What an answer gave its worker, for the case that the worker did not hear it and answers again.
#[derive(Debug, Clone)]
pub(crate) struct GivenBefore {
    /// The dispatch that was answered.
    dispatch: Dispatch,
    /// The last event that the decision had seen.
    seen: EventId,
    decided_at: Timestamp,
    activities: Vec<ActivityId>,
}

impl Actor {
    pub(crate) fn eager(&mut self, id: ExecutionId, envelope: Envelope) {
        let Operation::Eager(eager) = &envelope.operation else { return };
        let answer = match self.given_before(id, eager) {
            Some(given) => Ok(Answer::Given(Box::new(given))),
            None => match &eager.input {
                Input::CompleteWorkflowTask(complete) => self.complete_eagerly(id, eager, complete),
                input => self.close_eagerly(id, eager, input),
            },
        };
        self.ride(Some(id), envelope, answer);
    }

    fn complete_eagerly(&mut self, id: ExecutionId, eager: &EagerOperation, complete: &CompleteWorkflowTask) -> Result<Answer, Refusal> {
        let seen = self.cache.peek(id).and_then(|run| match run.state.workflow_task() {
            WorkflowTask::Started { seen, .. } => Some(*seen),
            WorkflowTask::None | WorkflowTask::Ready { .. } | WorkflowTask::Backoff { .. } => None,
        });
        let before = self.last_event(id);
        match self.decide(id, &eager.input, false) {
            Ok(Reply::TryAgain) => Ok(Answer::Given(Box::new(Given { try_again: true, ..Given::default() }))),
            Ok(_) => {
                let given = self.give(id, before, &complete.commands, &eager.eager_commands, &complete.worker_id);
                Ok(Answer::Given(Box::new(self.given(id, &complete.token.dispatch, seen.unwrap_or(before), given))))
            }
            Err(reject) => {
                self.refused(id, &eager.input, &reject);
                Err(Refusal::Reject(reject))
            }
        }
    }

    /// Records a result and, when the worker's decision about it fits, that decision.
    fn close_eagerly(&mut self, id: ExecutionId, eager: &EagerOperation, input: &Input) -> Result<Answer, Refusal> {
        let fitting = eager.ahead.as_ref().filter(|ahead| self.fits(id, ahead));
        let at = fitting.map(|ahead| ahead.completed_at);
        self.decide_at(id, input, false, at).map_err(Refusal::Reject)?;
        self.note_sign_of_life(id, input);
        let plain = Answer::Decided { execution_id: id, fresh: true, try_again: false, cancel_requested: false };
        let (Some(ahead), Input::CloseActivity { token, worker_id, .. }) = (fitting, input) else { return Ok(plain) };
        let activity_id = token.activity_id.unwrap_or_default();
        let recorded = self.cache.peek(id).and_then(|run| run.newest_event()).is_some_and(|event| {
            event.id == ahead.last_event.next() && matches!(event.kind, EventKind::ActivityCompleted { activity_id: ended, .. } if ended == activity_id)
        });
        if !recorded {
            return Ok(plain); // the result was too large, and the attempt has failed by it
        }
        Ok(match self.decide_ahead(id, ahead, worker_id) {
            Some(dispatch) => {
                let seen = ahead.last_event.next();
                let given = self.give(id, seen, &ahead.commands, &eager.eager_commands, worker_id);
                let mut given = self.given(id, &token.dispatch, seen, given);
                given.own_dispatch = Some(dispatch);
                Answer::Given(Box::new(given))
            }
            None => plain,
        })
    }

    /// Whether a worker that decides ahead has seen all there is, so that its decision is the one that the workflow task would bring.
    fn fits(&mut self, id: ExecutionId, ahead: &DecisionAhead) -> bool {
        let now = self.now();
        self.cache.peek(id).is_some_and(|run| {
            let state = &run.state;
            let nothing_new = *state.workflow_task() == WorkflowTask::None && state.last_event_id() == ahead.last_event;
            state.is_open() && nothing_new && state.last_record_at() <= ahead.completed_at && ahead.completed_at <= now
        })
    }

    /// The workflow task that the result has made ready is taken and completed. `None` when the core does not want the decision.
    fn decide_ahead(&mut self, id: ExecutionId, ahead: &DecisionAhead, worker_id: &WorkerId) -> Option<Dispatch> {
        let (dispatch, at) = (self.new_dispatch(worker_id), Some(ahead.completed_at));
        let Ok(Reply::WorkflowTask { attempt, .. }) = self.decide_at(id, &Input::StartWorkflowTask { dispatch: dispatch.clone() }, true, at) else {
            return None;
        };
        let token = TaskToken { execution_id: id, activity_id: None, attempt, dispatch: dispatch.clone() };
        let complete = Input::CompleteWorkflowTask(Box::new(CompleteWorkflowTask {
            token,
            worker_id: worker_id.clone(),
            build_id: ahead.build_id.clone(),
            sdk: ahead.sdk.clone(),
            consumed_signals: ahead.consumed_signals.clone(),
            commands: ahead.commands.clone(),
        }));
        match self.decide_at(id, &complete, false, at) {
            Ok(Reply::TryAgain) => None,
            Ok(_) => Some(dispatch),
            Err(reject) => {
                self.refused(id, &complete, &reject);
                None
            }
        }
    }

    /// Starts those activities of a decision that its worker wants. `before` is the last event before the decision.
    fn give(&mut self, id: ExecutionId, before: EventId, commands: &[Command], wanted: &BTreeSet<usize>, worker_id: &WorkerId) -> Vec<TakenActivityTask> {
        let Some(run) = self.cache.peek(id).filter(|run| run.state.is_open() && !wanted.is_empty()) else { return Vec::new() };
        let scheduled: Vec<ActivityId> = run.state.activities().map(|(activity_id, _)| activity_id).filter(|activity_id| *activity_id > before).collect();
        let asked: Vec<usize> = (0..commands.len()).filter(|at| matches!(commands[*at], Command::ScheduleActivity(_))).collect();
        if scheduled.len() != asked.len() {
            return Vec::new();
        }
        let chosen = asked.into_iter().zip(scheduled).filter(|(at, _)| wanted.contains(at)).map(|(_, activity_id)| activity_id);
        let taken = chosen.map(|activity_id| match self.take_activity(id, activity_id, worker_id) {
            Ok(Answer::ActivityTask(task)) => Some(*task),
            _ => None,
        });
        taken.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    fn given(&mut self, id: ExecutionId, dispatch: &Dispatch, seen: EventId, activities: Vec<TakenActivityTask>) -> Given {
        let ids = activities.iter().filter_map(|task| task.token.activity_id).collect();
        let given = self.cache.change(id, |run| {
            let decided_at = run.state.last_record_at();
            run.given = Some(GivenBefore { dispatch: dispatch.clone(), seen, decided_at, activities: ids });
            let new_events = if run.state.is_open() { run.events(seen.next(), run.state.last_event_id()) } else { None };
            (decided_at, new_events.unwrap_or_default())
        });
        let (decided_at, new_events) = given.unwrap_or_default();
        Given { try_again: false, activities, new_events, decided_at, own_dispatch: None }
    }

    /// The same answer again: for a worker that got activities by the one that was lost on its way, and is running none of them.
    fn given_before(&mut self, id: ExecutionId, eager: &EagerOperation) -> Option<Given> {
        let (token, worker_id) = eager.answers()?;
        let run = self.cache.peek(id)?;
        let before = run.given.as_ref().filter(|before| before.dispatch == token.dispatch && token.dispatch.worker_id == *worker_id)?;
        let activities: Vec<TakenActivityTask> = before
            .activities
            .iter()
            .filter_map(|activity_id| {
                let activity = run.state.activity(*activity_id)?;
                let ActivityPhase::Running { attempt, dispatch, .. } = activity.phase() else { return None };
                let token = TaskToken { execution_id: id, activity_id: Some(*activity_id), attempt: *attempt, dispatch: dispatch.clone() };
                (dispatch.worker_id == *worker_id).then(|| run.taken_activity(token, activity))
            })
            .collect();
        if activities.is_empty() {
            return None;
        }
        let new_events = run.events(before.seen.next(), run.state.last_event_id()).unwrap_or_default();
        Some(Given { try_again: false, activities, new_events, decided_at: before.decided_at, own_dispatch: None })
    }

    fn last_event(&self, id: ExecutionId) -> EventId {
        self.cache.peek(id).map_or(EventId(0), |run| run.state.last_event_id())
    }
}
