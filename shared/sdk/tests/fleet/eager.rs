//! Activities in the answers to decisions, and decisions ahead: what `docs/reference/workers.md` says of them.

use super::engine::{Engine, now};
use harvest_ids::*;
use harvest_proto::v1;
use harvest_wire::worker::{ClosedActivity, DecisionAhead};
use harvest_wire::{event, token};
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::input::{CompleteWorkflowTask, Input, TaskToken};
use harvest_workflow_core::machine::activity::ActivityPhase;
use harvest_workflow_core::machine::workflow_task::WorkflowTask;
use harvest_workflow_core::payload::Payload;
use std::collections::BTreeSet;

impl Engine {
    /// A worker has decided.
    pub fn complete(&mut self, task: CompleteWorkflowTask, wanted: &BTreeSet<usize>) -> Result<v1::CompleteWorkflowTaskResponse, Reject> {
        let (token, worker_id) = (task.token.clone(), task.worker_id.clone());
        if let Some(given) = self.given_before(&token) {
            return Ok(given);
        }
        let seen = match self.runs.get(&token.execution_id).map(|run| run.state.workflow_task()) {
            Some(WorkflowTask::Started { seen, .. }) => *seen,
            _ => EventId(0),
        };
        match self.input(token.execution_id, &Input::CompleteWorkflowTask(Box::new(task)))? {
            Reply::TryAgain => Ok(v1::CompleteWorkflowTaskResponse { try_again: true, ..Default::default() }),
            _ => Ok(self.given(&token, &worker_id, seen, wanted, false)),
        }
    }

    /// An attempt has ended. The answer has what came of a decision ahead that was taken.
    pub fn close(&mut self, closed: ClosedActivity) -> Result<Option<v1::CompleteWorkflowTaskResponse>, Reject> {
        let ClosedActivity { token, worker_id, outcome, ahead } = closed;
        if let Some(given) = self.given_before(&token) {
            return Ok(Some(given));
        }
        let id = token.execution_id;
        self.counts.ahead_sent += u32::from(ahead.is_some());
        if ahead.is_some() && self.faults.signals_before_ahead > 0 {
            self.faults.signals_before_ahead -= 1;
            let signal = Input::Signal { name: SignalName::new("noise").unwrap(), payload: Payload::null(), request_id: None };
            self.input(id, &signal)?;
        }
        let fitting = ahead.filter(|ahead| self.fits(id, ahead));
        let at = fitting.as_ref().map_or_else(now, |ahead| ahead.completed_at);
        self.input_at(id, &Input::CloseActivity { token: token.clone(), worker_id: worker_id.clone(), outcome }, at)?;
        let Some(ahead) = fitting.filter(|_| matches!(self.runs[&id].events.last().unwrap().kind, EventKind::ActivityCompleted { .. })) else {
            return Ok(None);
        };
        let dispatch = self.new_dispatch(&worker_id);
        let Reply::WorkflowTask { attempt, .. } = self.input_at(id, &Input::StartWorkflowTask { dispatch: dispatch.clone() }, at)? else { return Ok(None) };
        let complete = CompleteWorkflowTask {
            token: TaskToken { execution_id: id, activity_id: None, attempt, dispatch },
            worker_id: worker_id.clone(),
            build_id: ahead.build_id,
            sdk: ahead.sdk,
            consumed_signals: ahead.consumed_signals,
            commands: ahead.commands,
        };
        self.input_at(id, &Input::CompleteWorkflowTask(Box::new(complete)), at)?;
        self.counts.ahead_taken += 1;
        self.runs.get_mut(&id).unwrap().last_worker = worker_id.to_string();
        Ok(Some(self.given(&token, &worker_id, ahead.last_event.next(), &ahead.eager_commands, true)))
    }

    fn fits(&self, id: ExecutionId, ahead: &DecisionAhead) -> bool {
        let state = &self.runs[&id].state;
        let nothing_new = state.is_open() && *state.workflow_task() == WorkflowTask::None && state.last_event_id() == ahead.last_event;
        nothing_new && state.last_record_at() <= ahead.completed_at && ahead.completed_at <= now()
    }

    fn given(&mut self, token: &TaskToken, worker_id: &WorkerId, seen: EventId, wanted: &BTreeSet<usize>, ahead: bool) -> v1::CompleteWorkflowTaskResponse {
        let id = token.execution_id;
        self.counts.eager_wanted += wanted.len();
        let run = &self.runs[&id];
        let marker = run.events.iter().find(|event| event.id > seen && matches!(event.kind, EventKind::WorkflowTaskCompleted(_)));
        let (Some(marker), true) = (marker.map(|event| event.id), run.state.is_open()) else { return v1::CompleteWorkflowTaskResponse::default() };
        let mut eager_activities = Vec::new();
        for index in wanted.iter().filter(|_| !self.faults.never_eager).copied().collect::<Vec<_>>() {
            let dispatch = self.new_dispatch(worker_id);
            let activity_id = EventId(marker.0 + 1 + u64::try_from(index).unwrap());
            eager_activities.extend(self.activity_task(id, activity_id, dispatch));
        }
        self.counts.eager_given += eager_activities.len();
        let mut given = v1::CompleteWorkflowTaskResponse { eager_activities, ..Default::default() };
        if ahead || !given.eager_activities.is_empty() {
            given.new_events = self.runs[&id].events.iter().filter(|event| event.id > seen).map(event::to_proto).collect();
            given.decided_at_ms = now().as_millis();
        }
        if !given.eager_activities.is_empty() {
            self.given.insert(token::encode(token), given.clone());
        }
        given
    }

    /// The same answer again, while its activities run.
    fn given_before(&mut self, token: &TaskToken) -> Option<v1::CompleteWorkflowTaskResponse> {
        let given = self.given.get(&token::encode(token))?;
        let state = &self.runs[&token.execution_id].state;
        let is_running = |task: &v1::ActivityTask| {
            let dispatched = token::decode(&task.task_token).unwrap().dispatch;
            let activity = state.activity(EventId(task.activity_id));
            activity.is_some_and(|activity| matches!(activity.phase(), ActivityPhase::Running { dispatch, .. } if *dispatch == dispatched))
        };
        if !given.eager_activities.iter().any(is_running) {
            return None;
        }
        self.counts.repeated += 1;
        Some(given.clone())
    }
}
