//! A stand-in for the server: turns commands into events, adds news, keeps the history.

use crate::machine::Completion;
use harvest_ids::*;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::*;
use harvest_workflow_core::payload::Payload;
use std::collections::BTreeSet;

pub(super) struct Server {
    pub(super) history: Vec<Event>,
    pub(super) open: BTreeSet<(EventId, &'static str)>,
    pub(super) closed: bool,
}

pub(super) fn started() -> WorkflowStarted {
    let execution_id = ExecutionId::new(Slot::new(1).unwrap(), Timestamp::from_millis(1), 7);
    WorkflowStarted {
        namespace: Namespace::default(),
        workflow_type: WorkflowType::new("w").unwrap(),
        workflow_id: WorkflowId::new("id").unwrap(),
        execution_id,
        first_execution_id: execution_id,
        continued_from: None,
        parent: None,
        task_queue: TaskQueue::default(),
        input: Payload::null(),
        request_id: None,
        execution_timeout: None,
        workflow_task_timeout: DurationMs::from_millis_const(10_000),
        chain_execution_timeout: None,
        chain_deadline: None,
        sla: None,
        config_version: (0, 0),
    }
}

impl Server {
    pub(super) fn new() -> Self {
        let mut server = Self { history: Vec::new(), open: BTreeSet::new(), closed: false };
        server.push(EventKind::WorkflowStarted(Box::new(started())));
        server
    }

    pub(super) fn last(&self) -> EventId {
        self.history.last().unwrap().id
    }

    pub(super) fn push(&mut self, kind: EventKind) -> EventId {
        let id = EventId(u64::try_from(self.history.len()).unwrap() + 1);
        self.history.push(Event { id, at: Timestamp::from_millis(1_000 + i64::try_from(id.0).unwrap()), kind });
        id
    }

    pub(super) fn signal(&mut self, name: &str, text: &str) -> EventId {
        self.push(EventKind::SignalReceived { name: SignalName::new(name).unwrap(), payload: Payload::json(text.to_owned()), request_id: None })
    }

    /// Something open ends.
    pub(super) fn end(&mut self, id: EventId) {
        let found = self.open.iter().find(|(open, _)| *open == id).copied();
        let Some(entry) = found else { return };
        self.open.remove(&entry);
        let output = Payload::json(format!("{id}"));
        self.push(match entry.1 {
            "activity" => EventKind::ActivityCompleted { activity_id: id, output },
            "timer" => EventKind::TimerFired { timer_id: self.timer_name(id), started: id },
            _ => EventKind::ChildWorkflowCompleted { started: id, output },
        });
    }

    fn timer_name(&self, id: EventId) -> TimerName {
        match &self.history[usize::try_from(id.0).unwrap() - 1].kind {
            EventKind::TimerStarted { timer_id, .. } => timer_id.clone(),
            other => panic!("event {id} is {other:?}"),
        }
    }

    pub(super) fn complete(&mut self, seen: EventId, completion: Completion) {
        assert!(!self.closed);
        self.push(EventKind::WorkflowTaskCompleted(WorkflowTaskCompleted {
            worker_id: WorkerId::new("worker").unwrap(),
            build_id: String::new(),
            sdk: "test".to_owned(),
            seen,
            consumed_signals: completion.consumed_signals,
        }));
        let mut cancelled = Vec::new();
        for command in completion.commands {
            let (kind, open) = self.event_of(command);
            if let EventKind::ActivityCancelRequested { activity_id } = &kind {
                cancelled.push(*activity_id);
            }
            let id = self.push(kind);
            if let Some(open) = open {
                self.open.insert((id, open));
            }
        }
        for id in cancelled {
            if self.open.remove(&(id, "activity")) {
                self.push(EventKind::ActivityCancelled { activity_id: id });
            }
        }
    }

    /// The event that a command of the newest decision became.
    fn command(&self, index: usize) -> EventId {
        let decision = self.history.iter().rfind(|event| matches!(event.kind, EventKind::WorkflowTaskCompleted(_))).unwrap().id;
        EventId(decision.0 + 1 + u64::try_from(index).unwrap())
    }

    fn event_of(&mut self, command: Command) -> (EventKind, Option<&'static str>) {
        let child_run = started().execution_id;
        match command {
            Command::ScheduleActivity(asked) => {
                let kind = EventKind::ActivityScheduled(Box::new(ActivityScheduled {
                    activity_type: asked.activity_type,
                    input: asked.input,
                    task_queue: TaskQueue::default(),
                    retry: asked.options.retry.unwrap_or_default(),
                    start_to_close: None,
                    schedule_to_start: None,
                    heartbeat_timeout: None,
                    schedule_to_close: None,
                }));
                (kind, Some("activity"))
            }
            Command::ScheduleLocalActivity { activity_type, input } => (EventKind::LocalActivityScheduled { activity_type, input }, None),
            Command::CompleteLocalActivity { command, output } => (EventKind::LocalActivityCompleted { activity_id: self.command(command), output }, None),
            Command::FailLocalActivity { command, attempt, failure } => {
                (EventKind::LocalActivityFailed { activity_id: self.command(command), attempt, failure }, None)
            }
            Command::ExhaustLocalActivity { command, attempt, timeout } => {
                (EventKind::LocalActivityExhausted { activity_id: self.command(command), attempt, timeout }, None)
            }
            Command::CancelActivity { activity_id } => (EventKind::ActivityCancelRequested { activity_id }, None),
            Command::StartTimer { timer_id, duration } => (EventKind::TimerStarted { timer_id, duration }, Some("timer")),
            Command::CancelTimer { started } => {
                self.open.remove(&(started, "timer"));
                (EventKind::TimerCancelled { timer_id: self.timer_name(started), started }, None)
            }
            Command::RecordSideEffect { kind, name, value } => (EventKind::SideEffectRecorded { kind, name, value }, None),
            Command::RecordMarker { name, details } => (EventKind::MarkerRecorded { name, details }, None),
            Command::StartChildWorkflow(asked) => {
                let child = ChildWorkflow {
                    execution_id: child_run,
                    workflow_type: asked.workflow_type,
                    workflow_id: asked.workflow_id,
                    task_queue: TaskQueue::default(),
                    input: asked.input,
                    execution_timeout: None,
                };
                if asked.detached {
                    (EventKind::ChildWorkflowSpawnedDetached { child }, None)
                } else {
                    (EventKind::ChildWorkflowStarted { child }, Some("child"))
                }
            }
            Command::CancelChildWorkflow { started } => (EventKind::ChildWorkflowCancelRequested { started }, None),
            Command::CompleteWorkflow { output } => (self.close(EventKind::WorkflowCompleted { output }), None),
            Command::FailWorkflow { failure } => (self.close(EventKind::WorkflowFailed { failure }), None),
            Command::CancelWorkflow { reason } => (self.close(EventKind::WorkflowCancelled { reason }), None),
            Command::ContinueAsNew { input, workflow_type, .. } => {
                (self.close(EventKind::WorkflowContinuedAsNew { new_execution_id: child_run, new_workflow_type: workflow_type, input }), None)
            }
        }
    }

    fn close(&mut self, kind: EventKind) -> EventKind {
        self.closed = true;
        self.open.clear();
        kind
    }
}
