//! Whether a recorded event is what a command of the code became.
//!
//! Only what identifies the step is compared. Arguments, durations and options are not: a field added to an input must not block
//! running workflows.

use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::EventKind;

/// Whether `kind` is what `command` becomes when a server records it.
pub(crate) fn matches(command: &Command, kind: &EventKind) -> bool {
    match (command, kind) {
        (Command::ScheduleActivity(asked), EventKind::ActivityScheduled(event)) => asked.activity_type == event.activity_type,
        (Command::ScheduleLocalActivity { activity_type, .. }, EventKind::LocalActivityScheduled { activity_type: event, .. }) => activity_type == event,
        (Command::CompleteLocalActivity { .. }, EventKind::LocalActivityCompleted { .. })
        | (Command::FailLocalActivity { .. }, EventKind::LocalActivityFailed { .. })
        | (Command::ExhaustLocalActivity { .. }, EventKind::LocalActivityExhausted { .. }) => true, // they were made from these events
        (Command::CancelActivity { activity_id }, EventKind::ActivityCancelRequested { activity_id: event }) => activity_id == event,
        (Command::StartTimer { timer_id, .. }, EventKind::TimerStarted { timer_id: event, .. }) => timer_id == event,
        (Command::CancelTimer { started }, EventKind::TimerCancelled { started: event, .. }) => started == event,
        (Command::RecordSideEffect { kind, name, .. }, EventKind::SideEffectRecorded { kind: event_kind, name: event_name, .. }) => {
            kind == event_kind && name == event_name
        }
        (Command::RecordMarker { name, .. }, EventKind::MarkerRecorded { name: event, .. }) => name == event,
        (Command::StartChildWorkflow(asked), EventKind::ChildWorkflowStarted { child }) => {
            !asked.detached && asked.workflow_type == child.workflow_type && asked.workflow_id == child.workflow_id
        }
        (Command::StartChildWorkflow(asked), EventKind::ChildWorkflowSpawnedDetached { child }) => {
            asked.detached && asked.workflow_type == child.workflow_type && asked.workflow_id == child.workflow_id
        }
        (Command::CancelChildWorkflow { started }, EventKind::ChildWorkflowCancelRequested { started: event }) => started == event,
        (Command::CompleteWorkflow { .. }, EventKind::WorkflowCompleted { .. })
        | (Command::FailWorkflow { .. }, EventKind::WorkflowFailed { .. })
        | (Command::CancelWorkflow { .. }, EventKind::WorkflowCancelled { .. }) => true,
        (Command::ContinueAsNew { workflow_type, .. }, EventKind::WorkflowContinuedAsNew { new_workflow_type, .. }) => {
            new_workflow_type.is_none() || workflow_type == new_workflow_type
        }
        (
            Command::ScheduleActivity(_)
            | Command::ScheduleLocalActivity { .. }
            | Command::CompleteLocalActivity { .. }
            | Command::FailLocalActivity { .. }
            | Command::ExhaustLocalActivity { .. }
            | Command::CancelActivity { .. }
            | Command::StartTimer { .. }
            | Command::CancelTimer { .. }
            | Command::RecordSideEffect { .. }
            | Command::RecordMarker { .. }
            | Command::StartChildWorkflow(_)
            | Command::CancelChildWorkflow { .. }
            | Command::CompleteWorkflow { .. }
            | Command::FailWorkflow { .. }
            | Command::CancelWorkflow { .. }
            | Command::ContinueAsNew { .. },
            _,
        ) => false,
    }
}

/// A command as a person would name it.
pub(crate) fn describe_command(command: &Command) -> String {
    match command {
        Command::ScheduleActivity(asked) => format!("activity {}", asked.activity_type),
        Command::ScheduleLocalActivity { activity_type, .. } => format!("local activity {activity_type}"),
        Command::CompleteLocalActivity { .. } => "the result of a local activity".to_owned(),
        Command::FailLocalActivity { .. } => "a failed attempt of a local activity".to_owned(),
        Command::ExhaustLocalActivity { .. } => "the end of a local activity".to_owned(),
        Command::CancelActivity { activity_id } => format!("cancel of activity {activity_id}"),
        Command::StartTimer { timer_id, .. } => format!("timer {timer_id}"),
        Command::CancelTimer { started } => format!("cancel of the timer of event {started}"),
        Command::RecordSideEffect { kind, name, .. } => describe_side_effect(*kind, name.as_deref()),
        Command::RecordMarker { name, .. } => format!("marker {name}"),
        Command::StartChildWorkflow(asked) => describe_child(asked.workflow_type.as_str(), asked.workflow_id.as_str(), asked.detached),
        Command::CancelChildWorkflow { started } => format!("cancel of the child of event {started}"),
        Command::CompleteWorkflow { .. } => "completion of the workflow".to_owned(),
        Command::FailWorkflow { failure } => format!("failure of the workflow ({})", failure.error_type),
        Command::CancelWorkflow { .. } => "cancellation of the workflow".to_owned(),
        Command::ContinueAsNew { .. } => "continue as new".to_owned(),
    }
}

/// A recorded command event as a person would name it.
pub(crate) fn describe_event(kind: &EventKind) -> String {
    match kind {
        EventKind::ActivityScheduled(event) => format!("activity {}", event.activity_type),
        EventKind::LocalActivityScheduled { activity_type, .. } => format!("local activity {activity_type}"),
        EventKind::LocalActivityCompleted { .. } => "the result of a local activity".to_owned(),
        EventKind::LocalActivityFailed { .. } => "a failed attempt of a local activity".to_owned(),
        EventKind::LocalActivityExhausted { .. } => "the end of a local activity".to_owned(),
        EventKind::ActivityCancelRequested { activity_id } => format!("cancel of activity {activity_id}"),
        EventKind::TimerStarted { timer_id, .. } => format!("timer {timer_id}"),
        EventKind::TimerCancelled { started, .. } => format!("cancel of the timer of event {started}"),
        EventKind::SideEffectRecorded { kind, name, .. } => describe_side_effect(*kind, name.as_deref()),
        EventKind::MarkerRecorded { name, .. } => format!("marker {name}"),
        EventKind::ChildWorkflowStarted { child } => describe_child(child.workflow_type.as_str(), child.workflow_id.as_str(), false),
        EventKind::ChildWorkflowSpawnedDetached { child } => describe_child(child.workflow_type.as_str(), child.workflow_id.as_str(), true),
        EventKind::ChildWorkflowCancelRequested { started } => format!("cancel of the child of event {started}"),
        EventKind::WorkflowCompleted { .. } => "completion of the workflow".to_owned(),
        EventKind::WorkflowFailed { failure } => format!("failure of the workflow ({})", failure.error_type),
        EventKind::WorkflowCancelled { .. } => "cancellation of the workflow".to_owned(),
        EventKind::WorkflowContinuedAsNew { .. } => "continue as new".to_owned(),
        EventKind::WorkflowStarted(_)
        | EventKind::WorkflowTaskCompleted(_)
        | EventKind::WorkflowCancelRequested { .. }
        | EventKind::WorkflowTerminated { .. }
        | EventKind::WorkflowExecutionTimedOut { .. }
        | EventKind::ActivityCompleted { .. }
        | EventKind::ActivityFailed { .. }
        | EventKind::ActivityTimedOut { .. }
        | EventKind::ActivityCancelled { .. }
        | EventKind::TimerFired { .. }
        | EventKind::SignalReceived { .. }
        | EventKind::ChildWorkflowCompleted { .. }
        | EventKind::ChildWorkflowFailed { .. } => "an event that no command makes".to_owned(),
    }
}

fn describe_child(workflow_type: &str, workflow_id: &str, detached: bool) -> String {
    format!("{}child workflow {workflow_type} ({workflow_id})", if detached { "detached " } else { "" })
}

/// A side effect as a person would name it.
pub(crate) fn describe_side_effect(kind: harvest_workflow_core::event::SideEffectKind, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("side effect {kind:?} {name}"),
        None => format!("side effect {kind:?}"),
    }
}
