//! Events to the wire.

use crate::field::{self, millis_or_zero, text_or_empty};
use crate::{failure, payload, retry};
use harvest_proto::v1;
use harvest_proto::v1::event::Kind;
use harvest_workflow_core::event::{ActivityScheduled, ChildWorkflow, Event, EventKind, Parent, WorkflowStarted};

/// To the wire.
pub fn to_proto(event: &Event) -> v1::Event {
    v1::Event { event_id: event.id.0, at_ms: event.at.as_millis(), kind: Some(kind(&event.kind)) }
}

// long: one arm per variant
fn kind(kind: &EventKind) -> Kind {
    match kind {
        EventKind::WorkflowStarted(it) => Kind::WorkflowStarted(started(it)),
        EventKind::WorkflowTaskCompleted(it) => Kind::WorkflowTaskCompleted(v1::WorkflowTaskCompleted {
            worker_id: it.worker_id.to_string(),
            build_id: it.build_id.clone(),
            sdk: it.sdk.clone(),
            seen_event_id: it.seen.0,
            consumed_signal_event_ids: field::numbers(&it.consumed_signals),
        }),
        EventKind::WorkflowCompleted { output } => Kind::WorkflowCompleted(v1::WorkflowCompleted { output: Some(payload::to_proto(output)) }),
        EventKind::WorkflowFailed { failure: it } => Kind::WorkflowFailed(v1::WorkflowFailed { failure: Some(failure::to_proto(it)) }),
        EventKind::WorkflowCancelRequested { reason } => Kind::WorkflowCancelRequested(v1::WorkflowCancelRequested { reason: reason.clone() }),
        EventKind::WorkflowCancelled { reason } => Kind::WorkflowCancelled(v1::WorkflowCancelled { reason: reason.clone() }),
        EventKind::WorkflowTerminated { reason } => Kind::WorkflowTerminated(v1::WorkflowTerminated { reason: reason.clone() }),
        EventKind::WorkflowExecutionTimedOut { timeout } => {
            Kind::WorkflowExecutionTimedOut(v1::WorkflowExecutionTimedOut { timeout: field::workflow_timeout_word(*timeout).to_owned() })
        }
        EventKind::WorkflowContinuedAsNew { new_execution_id, new_workflow_type, input } => Kind::WorkflowContinuedAsNew(v1::WorkflowContinuedAsNew {
            new_execution_id: new_execution_id.to_string(),
            new_workflow_type: text_or_empty(new_workflow_type.as_ref()),
            input: Some(payload::to_proto(input)),
        }),
        EventKind::ActivityScheduled(it) => Kind::ActivityScheduled(scheduled(it)),
        EventKind::ActivityCompleted { activity_id, output } => {
            Kind::ActivityCompleted(v1::ActivityCompleted { activity_id: activity_id.0, output: Some(payload::to_proto(output)) })
        }
        EventKind::ActivityFailed { activity_id, attempt, failure: it } => {
            Kind::ActivityFailed(v1::ActivityFailed { activity_id: activity_id.0, attempt: attempt.0, failure: Some(failure::to_proto(it)) })
        }
        EventKind::ActivityTimedOut { activity_id, attempt, timeout } => Kind::ActivityTimedOut(v1::ActivityTimedOut {
            activity_id: activity_id.0,
            attempt: attempt.0,
            timeout_type: field::activity_timeout_word(*timeout).to_owned(),
        }),
        EventKind::ActivityCancelled { activity_id } => Kind::ActivityCancelled(v1::ActivityCancelled { activity_id: activity_id.0 }),
        EventKind::ActivityCancelRequested { activity_id } => Kind::ActivityCancelRequested(v1::ActivityCancelRequested { activity_id: activity_id.0 }),
        EventKind::TimerStarted { timer_id, duration } => {
            Kind::TimerStarted(v1::TimerStarted { timer_id: timer_id.to_string(), duration_ms: duration.as_millis() })
        }
        EventKind::LocalActivityScheduled { activity_type, input } => {
            Kind::LocalActivityScheduled(v1::LocalActivityScheduled { activity_type: activity_type.to_string(), input: Some(payload::to_proto(input)) })
        }
        EventKind::LocalActivityCompleted { activity_id, output } => {
            Kind::LocalActivityCompleted(v1::LocalActivityCompleted { activity_id: activity_id.0, output: Some(payload::to_proto(output)) })
        }
        EventKind::LocalActivityFailed { activity_id, attempt, failure: it } => {
            Kind::LocalActivityFailed(v1::LocalActivityFailed { activity_id: activity_id.0, attempt: attempt.0, failure: Some(failure::to_proto(it)) })
        }
        EventKind::LocalActivityExhausted { activity_id, attempt, timeout } => Kind::LocalActivityExhausted(v1::LocalActivityExhausted {
            activity_id: activity_id.0,
            attempt: attempt.0,
            timeout_type: timeout.map(field::activity_timeout_word).unwrap_or_default().to_owned(),
        }),
        EventKind::TimerFired { timer_id, started } => Kind::TimerFired(v1::TimerFired { timer_id: timer_id.to_string(), started_event_id: started.0 }),
        EventKind::TimerCancelled { timer_id, started } => {
            Kind::TimerCancelled(v1::TimerCancelled { timer_id: timer_id.to_string(), started_event_id: started.0 })
        }
        EventKind::SignalReceived { name, payload: it, request_id } => Kind::SignalReceived(v1::SignalReceived {
            signal_name: name.to_string(),
            payload: Some(payload::to_proto(it)),
            request_id: text_or_empty(request_id.as_ref()),
        }),
        EventKind::SideEffectRecorded { kind, name, value } => Kind::SideEffectRecorded(v1::SideEffectRecorded {
            kind: field::side_effect_word(*kind).to_owned(),
            name: name.clone().unwrap_or_default(),
            value: Some(payload::to_proto(value)),
        }),
        EventKind::MarkerRecorded { name, details } => {
            Kind::MarkerRecorded(v1::MarkerRecorded { name: name.clone(), details: details.as_ref().map(payload::to_proto) })
        }
        EventKind::ChildWorkflowStarted { child: it } => Kind::ChildWorkflowStarted(v1::ChildWorkflowStarted { child: Some(child(it)) }),
        EventKind::ChildWorkflowSpawnedDetached { child: it } => {
            Kind::ChildWorkflowSpawnedDetached(v1::ChildWorkflowSpawnedDetached { child: Some(child(it)) })
        }
        EventKind::ChildWorkflowCompleted { started, output } => {
            Kind::ChildWorkflowCompleted(v1::ChildWorkflowCompleted { started_event_id: started.0, output: Some(payload::to_proto(output)) })
        }
        EventKind::ChildWorkflowFailed { started, failure: it } => {
            Kind::ChildWorkflowFailed(v1::ChildWorkflowFailed { started_event_id: started.0, failure: Some(failure::to_proto(it)) })
        }
        EventKind::ChildWorkflowCancelRequested { started } => {
            Kind::ChildWorkflowCancelRequested(v1::ChildWorkflowCancelRequested { started_event_id: started.0 })
        }
    }
}

fn started(it: &WorkflowStarted) -> v1::WorkflowStarted {
    v1::WorkflowStarted {
        namespace: it.namespace.to_string(),
        workflow_type: it.workflow_type.to_string(),
        workflow_id: it.workflow_id.to_string(),
        execution_id: it.execution_id.to_string(),
        first_execution_id: it.first_execution_id.to_string(),
        continued_from: text_or_empty(it.continued_from.as_ref()),
        parent: it.parent.as_ref().map(parent),
        task_queue: it.task_queue.to_string(),
        input: Some(payload::to_proto(&it.input)),
        request_id: text_or_empty(it.request_id.as_ref()),
        execution_timeout_ms: millis_or_zero(it.execution_timeout),
        workflow_task_timeout_ms: it.workflow_task_timeout.as_millis(),
        chain_execution_timeout_ms: millis_or_zero(it.chain_execution_timeout),
        chain_deadline_ms: it.chain_deadline.map(harvest_ids::Timestamp::as_millis),
        sla_ms: millis_or_zero(it.sla),
        config_generation: it.config_version.0,
        config_number: it.config_version.1,
    }
}

fn scheduled(it: &ActivityScheduled) -> v1::ActivityScheduled {
    v1::ActivityScheduled {
        activity_type: it.activity_type.to_string(),
        input: Some(payload::to_proto(&it.input)),
        task_queue: it.task_queue.to_string(),
        retry: Some(retry::to_proto(&it.retry)),
        start_to_close_ms: millis_or_zero(it.start_to_close),
        schedule_to_start_ms: millis_or_zero(it.schedule_to_start),
        heartbeat_timeout_ms: millis_or_zero(it.heartbeat_timeout),
        schedule_to_close_ms: millis_or_zero(it.schedule_to_close),
    }
}

/// A parent to the wire.
pub(crate) fn parent(parent: &Parent) -> v1::Parent {
    v1::Parent { execution_id: parent.execution_id.to_string(), initiated_event_id: parent.initiated.0, detached: parent.detached }
}

/// A child to the wire.
pub(crate) fn child(child: &ChildWorkflow) -> v1::ChildWorkflow {
    v1::ChildWorkflow {
        execution_id: child.execution_id.to_string(),
        workflow_type: child.workflow_type.to_string(),
        workflow_id: child.workflow_id.to_string(),
        task_queue: child.task_queue.to_string(),
        input: Some(payload::to_proto(&child.input)),
        execution_timeout_ms: millis_or_zero(child.execution_timeout),
    }
}
