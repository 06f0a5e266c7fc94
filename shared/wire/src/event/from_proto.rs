//! Events from the wire.

use crate::error::WireError;
use crate::field::{self, execution_id, name, optional_execution_id, optional_name, required, span, span_or_none};
use crate::{failure, payload, retry};
use harvest_ids::{Attempt, EventId, Timestamp};
use harvest_proto::v1;
use harvest_proto::v1::event::Kind;
use harvest_workflow_core::event::{ActivityScheduled, ChildWorkflow, Event, EventKind, Parent, WorkflowStarted, WorkflowTaskCompleted};

/// From the wire. An unknown variant is refused, never skipped.
///
/// # Errors
/// [`WireError`] naming the field.
pub fn from_proto(event: v1::Event) -> Result<Event, WireError> {
    if event.event_id == 0 {
        return Err(WireError::Range { field: "event_id".into(), found: "0".into(), allowed: "numbers from 1" });
    }
    let Some(kind) = event.kind else {
        return Err(WireError::Garbage { field: "kind".into(), problem: "the event's variant is missing or newer than this program".into() });
    };
    Ok(Event { id: EventId(event.event_id), at: Timestamp::from_millis(event.at_ms), kind: self::kind(kind)? })
}

fn kind(kind: Kind) -> Result<EventKind, WireError> {
    Ok(match kind {
        Kind::WorkflowStarted(it) => EventKind::WorkflowStarted(Box::new(started(it)?)),
        Kind::WorkflowTaskCompleted(it) => EventKind::WorkflowTaskCompleted(task_completed(it)?),
        Kind::WorkflowCompleted(it) => EventKind::WorkflowCompleted { output: payload::or_null("output", it.output)? },
        Kind::WorkflowFailed(it) => EventKind::WorkflowFailed { failure: failure::required("failure", it.failure)? },
        Kind::WorkflowCancelRequested(it) => EventKind::WorkflowCancelRequested { reason: it.reason },
        Kind::WorkflowCancelled(it) => EventKind::WorkflowCancelled { reason: it.reason },
        Kind::WorkflowTerminated(it) => EventKind::WorkflowTerminated { reason: it.reason },
        Kind::WorkflowExecutionTimedOut(it) => EventKind::WorkflowExecutionTimedOut { timeout: field::workflow_timeout("timeout", &it.timeout)? },
        Kind::WorkflowContinuedAsNew(it) => EventKind::WorkflowContinuedAsNew {
            new_execution_id: execution_id("new_execution_id", &it.new_execution_id)?,
            new_workflow_type: optional_name("new_workflow_type", it.new_workflow_type)?,
            input: payload::or_null("input", it.input)?,
        },
        Kind::ActivityScheduled(it) => EventKind::ActivityScheduled(Box::new(scheduled(it)?)),
        Kind::ActivityCompleted(it) => EventKind::ActivityCompleted { activity_id: EventId(it.activity_id), output: payload::or_null("output", it.output)? },
        Kind::ActivityFailed(it) => {
            EventKind::ActivityFailed { activity_id: EventId(it.activity_id), attempt: Attempt(it.attempt), failure: failure::required("failure", it.failure)? }
        }
        Kind::ActivityTimedOut(it) => EventKind::ActivityTimedOut {
            activity_id: EventId(it.activity_id),
            attempt: Attempt(it.attempt),
            timeout: field::activity_timeout("timeout_type", &it.timeout_type)?,
        },
        Kind::ActivityCancelled(it) => EventKind::ActivityCancelled { activity_id: EventId(it.activity_id) },
        Kind::ActivityCancelRequested(it) => EventKind::ActivityCancelRequested { activity_id: EventId(it.activity_id) },
        Kind::LocalActivityScheduled(it) => {
            EventKind::LocalActivityScheduled { activity_type: name("activity_type", it.activity_type)?, input: payload::or_null("input", it.input)? }
        }
        Kind::LocalActivityCompleted(it) => {
            EventKind::LocalActivityCompleted { activity_id: EventId(it.activity_id), output: payload::or_null("output", it.output)? }
        }
        Kind::LocalActivityFailed(it) => EventKind::LocalActivityFailed {
            activity_id: EventId(it.activity_id),
            attempt: Attempt(it.attempt),
            failure: failure::required("failure", it.failure)?,
        },
        Kind::LocalActivityExhausted(it) => EventKind::LocalActivityExhausted {
            activity_id: EventId(it.activity_id),
            attempt: Attempt(it.attempt),
            timeout: field::optional_activity_timeout("timeout_type", &it.timeout_type)?,
        },
        Kind::TimerStarted(it) => EventKind::TimerStarted { timer_id: name("timer_id", it.timer_id)?, duration: span("duration_ms", it.duration_ms)? },
        Kind::TimerFired(it) => EventKind::TimerFired { timer_id: name("timer_id", it.timer_id)?, started: EventId(it.started_event_id) },
        Kind::TimerCancelled(it) => EventKind::TimerCancelled { timer_id: name("timer_id", it.timer_id)?, started: EventId(it.started_event_id) },
        Kind::SignalReceived(it) => EventKind::SignalReceived {
            name: name("signal_name", it.signal_name)?,
            payload: payload::or_null("payload", it.payload)?,
            request_id: optional_name("request_id", it.request_id)?,
        },
        Kind::SideEffectRecorded(it) => EventKind::SideEffectRecorded {
            kind: field::side_effect_kind("kind", &it.kind)?,
            name: (!it.name.is_empty()).then_some(it.name),
            value: payload::or_null("value", it.value)?,
        },
        Kind::MarkerRecorded(it) => EventKind::MarkerRecorded { name: it.name, details: payload::optional("details", it.details)? },
        Kind::ChildWorkflowStarted(it) => EventKind::ChildWorkflowStarted { child: child("child", it.child)? },
        Kind::ChildWorkflowSpawnedDetached(it) => EventKind::ChildWorkflowSpawnedDetached { child: child("child", it.child)? },
        Kind::ChildWorkflowCompleted(it) => {
            EventKind::ChildWorkflowCompleted { started: EventId(it.started_event_id), output: payload::or_null("output", it.output)? }
        }
        Kind::ChildWorkflowFailed(it) => {
            EventKind::ChildWorkflowFailed { started: EventId(it.started_event_id), failure: failure::required("failure", it.failure)? }
        }
        Kind::ChildWorkflowCancelRequested(it) => EventKind::ChildWorkflowCancelRequested { started: EventId(it.started_event_id) },
    })
}

fn started(it: v1::WorkflowStarted) -> Result<WorkflowStarted, WireError> {
    Ok(WorkflowStarted {
        namespace: name("namespace", it.namespace)?,
        workflow_type: name("workflow_type", it.workflow_type)?,
        workflow_id: name("workflow_id", it.workflow_id)?,
        execution_id: execution_id("execution_id", &it.execution_id)?,
        first_execution_id: execution_id("first_execution_id", &it.first_execution_id)?,
        continued_from: optional_execution_id("continued_from", &it.continued_from)?,
        parent: it.parent.map(parent).transpose()?,
        task_queue: name("task_queue", it.task_queue)?,
        input: payload::or_null("input", it.input)?,
        request_id: optional_name("request_id", it.request_id)?,
        execution_timeout: span_or_none("execution_timeout_ms", it.execution_timeout_ms)?,
        workflow_task_timeout: span("workflow_task_timeout_ms", it.workflow_task_timeout_ms)?,
        chain_execution_timeout: span_or_none("chain_execution_timeout_ms", it.chain_execution_timeout_ms)?,
        chain_deadline: it.chain_deadline_ms.map(Timestamp::from_millis),
        sla: span_or_none("sla_ms", it.sla_ms)?,
        config_version: (it.config_generation, it.config_number),
    })
}

fn task_completed(it: v1::WorkflowTaskCompleted) -> Result<WorkflowTaskCompleted, WireError> {
    Ok(WorkflowTaskCompleted {
        worker_id: name("worker_id", it.worker_id)?,
        build_id: it.build_id,
        sdk: it.sdk,
        seen: EventId(it.seen_event_id),
        consumed_signals: field::event_ids(it.consumed_signal_event_ids),
    })
}

fn scheduled(it: v1::ActivityScheduled) -> Result<ActivityScheduled, WireError> {
    Ok(ActivityScheduled {
        activity_type: name("activity_type", it.activity_type)?,
        input: payload::or_null("input", it.input)?,
        task_queue: name("task_queue", it.task_queue)?,
        retry: retry::from_proto(required("retry", it.retry)?).map_err(|error| error.within("retry"))?,
        start_to_close: span_or_none("start_to_close_ms", it.start_to_close_ms)?,
        schedule_to_start: span_or_none("schedule_to_start_ms", it.schedule_to_start_ms)?,
        heartbeat_timeout: span_or_none("heartbeat_timeout_ms", it.heartbeat_timeout_ms)?,
        schedule_to_close: span_or_none("schedule_to_close_ms", it.schedule_to_close_ms)?,
    })
}

/// A parent from the wire.
pub(crate) fn parent(it: v1::Parent) -> Result<Parent, WireError> {
    let execution_id = execution_id("execution_id", &it.execution_id).map_err(|error| error.within("parent"))?;
    Ok(Parent { execution_id, initiated: EventId(it.initiated_event_id), detached: it.detached })
}

/// A child from the wire.
pub(crate) fn child(field: &str, it: Option<v1::ChildWorkflow>) -> Result<ChildWorkflow, WireError> {
    let it = required(field, it)?;
    let read = || -> Result<ChildWorkflow, WireError> {
        Ok(ChildWorkflow {
            execution_id: execution_id("execution_id", &it.execution_id)?,
            workflow_type: name("workflow_type", it.workflow_type)?,
            workflow_id: name("workflow_id", it.workflow_id)?,
            task_queue: name("task_queue", it.task_queue)?,
            input: payload::or_null("input", it.input)?,
            execution_timeout: span_or_none("execution_timeout_ms", it.execution_timeout_ms)?,
        })
    };
    read().map_err(|error| error.within(field))
}
