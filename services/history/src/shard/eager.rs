//! Work in the answer to a worker's answer: activities that a decision schedules, and the decision that an activity's result leads to.
//!
//! Both save round trips, never rules: each step is decided by the core as if it had come alone, one after the other, and all of them are
//! in one commit. An eager activity is started like one that was taken; a decision ahead is a workflow task that is taken and completed
//! at once, and only when the worker had seen everything that the task would have shown it.

use super::Envelope;
use super::actor::Actor;
use super::batch::Riding;
use super::operation::{Answer, EagerOperation, Given, Operation, Refusal, TakenActivityTask};
use harvest_ids::{ActivityId, Attempt, EventId, ExecutionId, Timestamp, WorkerId};
use harvest_wire::worker::DecisionAhead;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::decision::Reply;
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::input::{CompleteWorkflowTask, Input, TaskToken};
use harvest_workflow_core::machine::activity::{Activity, ActivityPhase};
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
            state.is_open() && !state.is_put_off_since_decision() && nothing_new && state.last_record_at() <= ahead.completed_at && ahead.completed_at <= now
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

    /// Those activities of a decision that its worker wants. `before` is the last event before the decision. One that may run only once is started in
    /// the commit of the decision. The others are started when it has committed, in memory, like a task that is taken: should this owner die before
    /// its answer is heard, the next one knows them as waiting and need not wait for a worker that was told nothing.
    fn give(&mut self, id: ExecutionId, before: EventId, commands: &[Command], wanted: &BTreeSet<usize>, worker_id: &WorkerId) -> Given {
        let mut given = Given::default();
        let Some(run) = self.cache.peek(id).filter(|run| run.state.is_open() && !wanted.is_empty()) else { return given };
        let scheduled: Vec<(ActivityId, bool)> = run
            .state
            .activities()
            .filter(|(activity_id, _)| *activity_id > before)
            .map(|(activity_id, activity)| (activity_id, activity.spec().retry.max_attempts == 1))
            .collect();
        let asked: Vec<usize> = (0..commands.len()).filter(|at| matches!(commands[*at], Command::ScheduleActivity(_))).collect();
        if scheduled.len() != asked.len() {
            return given;
        }
        for (_, (activity_id, once)) in asked.into_iter().zip(scheduled).filter(|(at, _)| wanted.contains(at)) {
            if !once {
                given.to_start.push(activity_id);
            } else if let Ok(Answer::ActivityTask(task)) = self.take_activity(id, activity_id, worker_id) {
                given.activities.push(*task);
            }
        }
        given
    }

    fn given(&mut self, id: ExecutionId, dispatch: &Dispatch, seen: EventId, mut given: Given) -> Given {
        let activities = given.activities.iter().filter_map(|task| task.token.activity_id).chain(given.to_start.iter().copied()).collect();
        let remembered = self.cache.change(id, |run| {
            let decided_at = run.state.last_record_at();
            run.given = Some(GivenBefore { dispatch: dispatch.clone(), seen, decided_at, activities });
            let new_events = if run.state.is_open() { run.events(seen.next(), run.state.last_event_id()) } else { None };
            (decided_at, new_events)
        });
        if let Some((decided_at, new_events)) = remembered {
            (given.decided_at, given.new_events) = (decided_at, new_events.unwrap_or_default());
        }
        given
    }

    /// The same answer again: for a worker that did not hear the one that gave it activities, while one of them waits or is its own.
    fn given_before(&mut self, id: ExecutionId, eager: &EagerOperation) -> Option<Given> {
        let (token, worker_id) = eager.answers()?;
        let run = self.cache.peek(id)?;
        let before = run.given.as_ref().filter(|before| before.dispatch == token.dispatch && token.dispatch.worker_id == *worker_id)?;
        let is_its_own = |activity_id: &ActivityId| match run.state.activity(*activity_id).map(Activity::phase) {
            Some(ActivityPhase::Running { dispatch, .. }) => dispatch.worker_id == *worker_id,
            Some(ActivityPhase::Ready { attempt, .. }) => *attempt == Attempt::FIRST,
            Some(ActivityPhase::Backoff { .. }) | None => false,
        };
        let to_start: Vec<ActivityId> = before.activities.iter().copied().filter(is_its_own).collect();
        if to_start.is_empty() {
            return None;
        }
        let new_events = run.events(before.seen.next(), run.state.last_event_id()).unwrap_or_default();
        Some(Given { to_start, new_events, decided_at: before.decided_at, ..Given::default() })
    }

    /// Lets an answer go whose decision has committed, or whose owner is known to be the owner; with it go the tasks that it gives.
    pub(crate) fn release(&mut self, mut riding: Riding) {
        if let (Operation::Start(start), Ok(answer)) = (&riding.envelope.operation, &mut riding.answer) {
            self.give_first_task(start, answer);
        }
        if let (Operation::Eager(eager), Ok(Answer::Given(given))) = (&riding.envelope.operation, &mut riding.answer)
            && let Some((token, worker_id)) = eager.answers()
            && !given.to_start.is_empty()
        {
            let id = token.execution_id;
            let started = std::mem::take(&mut given.to_start).into_iter().filter_map(|activity_id| self.started_for(id, activity_id, worker_id));
            given.activities.extend(started.collect::<Vec<_>>());
            given.activities.sort_by_key(|task| task.token.activity_id);
            self.note_volatile_deadline(id);
            if self.open.touched.contains(&id) {
                // The run has news since, and its tasks show how far it has come: like a task that is taken, they ride what is not durable yet.
                self.open.riding.push(riding);
                return;
            }
        }
        riding.release();
    }

    /// An activity's task for a worker: the one that it has, or a new one if it still waits.
    fn started_for(&mut self, id: ExecutionId, activity_id: ActivityId, worker_id: &WorkerId) -> Option<TakenActivityTask> {
        let run = self.cache.peek(id)?;
        let activity = run.state.activity(activity_id)?;
        if let ActivityPhase::Running { attempt, dispatch, .. } = activity.phase()
            && dispatch.worker_id == *worker_id
        {
            let token = TaskToken { execution_id: id, activity_id: Some(activity_id), attempt: *attempt, dispatch: dispatch.clone() };
            return Some(run.taken_activity(token, activity));
        }
        match self.take_activity(id, activity_id, worker_id) {
            Ok(Answer::ActivityTask(task)) => Some(*task),
            Ok(_) | Err(_) => None,
        }
    }

    fn last_event(&self, id: ExecutionId) -> EventId {
        self.cache.peek(id).map_or(EventId(0), |run| run.state.last_event_id())
    }
}
