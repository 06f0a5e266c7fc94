//! Generators of core values and the round trips over them.

use crate::{command, event, json, message, records, token};
use bytes::Bytes;
use harvest_ids::{
    ActivityType, Attempt, DurationMs, Encoding, Epoch, EventId, ExecutionId, Namespace, RequestId, SignalName, Slot, TaskQueue, TimerName, Timestamp,
    WorkerId, WorkflowId, WorkflowType,
};
use harvest_workflow_core::command::{ActivityOptions, Command, ScheduleActivity, StartChildWorkflow};
use harvest_workflow_core::event::{
    ActivityScheduled, ActivityTimeout, ChildWorkflow, Event, EventKind, Parent, SideEffectKind, WorkflowStarted, WorkflowTaskCompleted, WorkflowTimeout,
};
use harvest_workflow_core::input::TaskToken;
use harvest_workflow_core::message::{ChildOutcome, Message, MessageBody};
use harvest_workflow_core::payload::{Failure, Payload};
use harvest_workflow_core::record::{Control, Dispatch, Record, WorkflowTaskFailure};
use harvest_workflow_core::retry::{Jitter, RetryPolicy};
use proptest::option::of;
use proptest::prelude::*;

const NAME: &str = "[a-zé:/ -]{1,12}";

macro_rules! names {
    ($($function:ident: $kind:ident,)+) => { $( fn $function() -> impl Strategy<Value = $kind> { NAME.prop_map(|text| $kind::new(text).unwrap()) } )+ };
}
names! {
    namespace: Namespace, workflow_type: WorkflowType, workflow_id: WorkflowId, activity_type: ActivityType, task_queue: TaskQueue,
    request_id: RequestId, signal_name: SignalName, timer_name: TimerName, worker_id: WorkerId,
}

fn execution_id() -> impl Strategy<Value = ExecutionId> {
    (0..4096u16, 0..1i64 << 40, any::<u64>())
        .prop_map(|(slot, millis, random)| ExecutionId::new(Slot::new(slot).unwrap(), Timestamp::from_millis(millis), random))
}
fn at() -> impl Strategy<Value = Timestamp> {
    any::<i64>().prop_map(Timestamp::from_millis)
}
fn event_id() -> impl Strategy<Value = EventId> {
    (1..u64::MAX).prop_map(EventId)
}
fn attempt() -> impl Strategy<Value = Attempt> {
    any::<u32>().prop_map(Attempt)
}
fn span() -> impl Strategy<Value = DurationMs> {
    (1..=DurationMs::MAX.as_millis()).prop_map(|millis| DurationMs::new("span", millis).unwrap())
}
fn text() -> impl Strategy<Value = String> {
    ".{0,20}"
}
fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|data| Payload { data: data.into(), encoding: Encoding::new("raw").unwrap() }),
        proptest::collection::vec(any::<u8>(), 0..10).prop_map(|data| Payload { data: data.into(), encoding: Encoding::json() }),
        Just(Payload::json(r#" {"a":[1,2.50,"x"]} "#)),
        any::<i64>().prop_map(|number| Payload::json(format!(r#"{{"b": {number},"a":null}}"#))),
        Just(Payload::json(Bytes::from_static(br#"{"encoding":"json","base64":"AA"}"#))),
    ]
}
fn failure() -> impl Strategy<Value = Failure> {
    (text(), "[A-Za-z]{1,9}", of(payload()), any::<bool>()).prop_map(|(message, error_type, details, non_retryable)| Failure {
        message,
        error_type,
        details,
        non_retryable,
    })
}
fn retry() -> impl Strategy<Value = RetryPolicy> {
    let interval = || (1..=crate::retry::MAX_INTERVAL_MS).prop_map(|millis| DurationMs::new("interval", millis).unwrap());
    let jitter = prop_oneof![Just(Jitter::None), Just(Jitter::Full), Just(Jitter::Equal), Just(Jitter::Decorrelated)];
    (1..u32::MAX, interval(), 1.0..100.0f64, interval(), proptest::collection::vec(text(), 0..3), jitter).prop_map(
        |(max_attempts, initial_interval, backoff_coefficient, max_interval, non_retryable_errors, jitter)| RetryPolicy {
            max_attempts,
            initial_interval,
            backoff_coefficient,
            max_interval,
            non_retryable_errors,
            jitter,
        },
    )
}
fn parent() -> impl Strategy<Value = Parent> {
    (execution_id(), event_id(), any::<bool>()).prop_map(|(execution_id, initiated, detached)| Parent { execution_id, initiated, detached })
}
fn child() -> impl Strategy<Value = ChildWorkflow> {
    (execution_id(), workflow_type(), workflow_id(), task_queue(), payload(), of(span())).prop_map(
        |(execution_id, workflow_type, workflow_id, task_queue, input, execution_timeout)| ChildWorkflow {
            execution_id,
            workflow_type,
            workflow_id,
            task_queue,
            input,
            execution_timeout,
        },
    )
}
fn side_effect_kind() -> impl Strategy<Value = SideEffectKind> {
    prop_oneof![Just(SideEffectKind::Now), Just(SideEffectKind::Uuid), Just(SideEffectKind::Random), Just(SideEffectKind::Custom)]
}
fn started() -> impl Strategy<Value = WorkflowStarted> {
    let who = (namespace(), workflow_type(), workflow_id(), execution_id(), execution_id(), of(execution_id()), of(parent()));
    let chain = (of(span()), of(any::<i64>().prop_map(Timestamp::from_millis)), of(span()));
    let what = (task_queue(), payload(), of(request_id()), of(span()), span(), any::<(u64, u64)>(), chain);
    (who, what).prop_map(|(who, what)| WorkflowStarted {
        namespace: who.0,
        workflow_type: who.1,
        workflow_id: who.2,
        execution_id: who.3,
        first_execution_id: who.4,
        continued_from: who.5,
        parent: who.6,
        task_queue: what.0,
        input: what.1,
        request_id: what.2,
        execution_timeout: what.3,
        workflow_task_timeout: what.4,
        config_version: what.5,
        chain_execution_timeout: what.6.0,
        chain_deadline: what.6.1,
        sla: what.6.2,
    })
}
fn task_completed() -> impl Strategy<Value = WorkflowTaskCompleted> {
    (worker_id(), text(), text(), event_id(), proptest::collection::vec(event_id(), 0..3))
        .prop_map(|(worker_id, build_id, sdk, seen, consumed_signals)| WorkflowTaskCompleted { worker_id, build_id, sdk, seen, consumed_signals })
}
fn scheduled() -> impl Strategy<Value = ActivityScheduled> {
    (activity_type(), payload(), task_queue(), retry(), [of(span()), of(span()), of(span()), of(span())]).prop_map(
        |(activity_type, input, task_queue, retry, [start_to_close, schedule_to_start, heartbeat_timeout, schedule_to_close])| ActivityScheduled {
            activity_type,
            input,
            task_queue,
            retry,
            start_to_close,
            schedule_to_start,
            heartbeat_timeout,
            schedule_to_close,
        },
    )
}
fn activity_timeout() -> impl Strategy<Value = ActivityTimeout> {
    use ActivityTimeout::{Heartbeat, ScheduleToClose, ScheduleToStart, StartToClose};
    prop_oneof![Just(StartToClose), Just(ScheduleToStart), Just(ScheduleToClose), Just(Heartbeat)]
}
fn kind() -> impl Strategy<Value = EventKind> {
    let of_workflow = prop_oneof![
        started().prop_map(|it| EventKind::WorkflowStarted(Box::new(it))),
        task_completed().prop_map(EventKind::WorkflowTaskCompleted),
        payload().prop_map(|output| EventKind::WorkflowCompleted { output }),
        failure().prop_map(|failure| EventKind::WorkflowFailed { failure }),
        text().prop_map(|reason| EventKind::WorkflowCancelRequested { reason }),
        text().prop_map(|reason| EventKind::WorkflowCancelled { reason }),
        text().prop_map(|reason| EventKind::WorkflowTerminated { reason }),
        Just(EventKind::WorkflowExecutionTimedOut { timeout: WorkflowTimeout::Execution }),
        Just(EventKind::WorkflowExecutionTimedOut { timeout: WorkflowTimeout::Chain }),
        (execution_id(), of(workflow_type()), payload()).prop_map(|(new_execution_id, new_workflow_type, input)| EventKind::WorkflowContinuedAsNew {
            new_execution_id,
            new_workflow_type,
            input
        }),
    ];
    let of_activity = prop_oneof![
        scheduled().prop_map(|it| EventKind::ActivityScheduled(Box::new(it))),
        (event_id(), payload()).prop_map(|(activity_id, output)| EventKind::ActivityCompleted { activity_id, output }),
        (event_id(), attempt(), failure()).prop_map(|(activity_id, attempt, failure)| EventKind::ActivityFailed { activity_id, attempt, failure }),
        (event_id(), attempt(), activity_timeout()).prop_map(|(activity_id, attempt, timeout)| EventKind::ActivityTimedOut { activity_id, attempt, timeout }),
        event_id().prop_map(|activity_id| EventKind::ActivityCancelled { activity_id }),
        event_id().prop_map(|activity_id| EventKind::ActivityCancelRequested { activity_id }),
        (activity_type(), payload()).prop_map(|(activity_type, input)| EventKind::LocalActivityScheduled { activity_type, input }),
        (event_id(), payload()).prop_map(|(activity_id, output)| EventKind::LocalActivityCompleted { activity_id, output }),
        (event_id(), attempt(), failure()).prop_map(|(activity_id, attempt, failure)| EventKind::LocalActivityFailed { activity_id, attempt, failure }),
        (event_id(), attempt(), of(activity_timeout())).prop_map(|(activity_id, attempt, timeout)| EventKind::LocalActivityExhausted {
            activity_id,
            attempt,
            timeout
        }),
    ];
    let others = prop_oneof![
        (timer_name(), span()).prop_map(|(timer_id, duration)| EventKind::TimerStarted { timer_id, duration }),
        (timer_name(), event_id()).prop_map(|(timer_id, started)| EventKind::TimerFired { timer_id, started }),
        (timer_name(), event_id()).prop_map(|(timer_id, started)| EventKind::TimerCancelled { timer_id, started }),
        (signal_name(), payload(), of(request_id())).prop_map(|(name, payload, request_id)| EventKind::SignalReceived { name, payload, request_id }),
        (side_effect_kind(), of("[a-z]{1,5}"), payload()).prop_map(|(kind, name, value)| EventKind::SideEffectRecorded { kind, name, value }),
        ("[a-z]{1,9}", of(payload())).prop_map(|(name, details)| EventKind::MarkerRecorded { name, details }),
        child().prop_map(|child| EventKind::ChildWorkflowStarted { child }),
        child().prop_map(|child| EventKind::ChildWorkflowSpawnedDetached { child }),
        (event_id(), payload()).prop_map(|(started, output)| EventKind::ChildWorkflowCompleted { started, output }),
        (event_id(), failure()).prop_map(|(started, failure)| EventKind::ChildWorkflowFailed { started, failure }),
        event_id().prop_map(|started| EventKind::ChildWorkflowCancelRequested { started }),
    ];
    prop_oneof![of_workflow, of_activity, others]
}
fn an_event() -> impl Strategy<Value = Event> {
    (event_id(), at(), kind()).prop_map(|(id, at, kind)| Event { id, at, kind })
}
fn dispatch() -> impl Strategy<Value = Dispatch> {
    (any::<u64>(), any::<u64>(), worker_id()).prop_map(|(epoch, sequence, worker_id)| Dispatch { epoch: Epoch(epoch), sequence, worker_id })
}
fn cause() -> impl Strategy<Value = WorkflowTaskFailure> {
    prop_oneof![
        Just(WorkflowTaskFailure::TimedOut),
        (text(), text(), text(), event_id()).prop_map(|(message, expected, actual, event_id)| WorkflowTaskFailure::NonDeterminism {
            message,
            expected,
            actual,
            event_id
        }),
        text().prop_map(|message| WorkflowTaskFailure::Panicked { message }),
        text().prop_map(|message| WorkflowTaskFailure::WorkerError { message }),
        Just(WorkflowTaskFailure::UnseenNews),
    ]
}
fn control() -> impl Strategy<Value = Control> {
    prop_oneof![
        (at(), attempt(), dispatch()).prop_map(|(at, attempt, dispatch)| Control::WorkflowTaskStarted { at, attempt, dispatch }),
        (at(), attempt(), cause(), at()).prop_map(|(at, attempt, cause, retry_at)| Control::WorkflowTaskFailed { at, attempt, cause, retry_at }),
        (at(), attempt()).prop_map(|(at, attempt)| Control::WorkflowTaskRetryDue { at, attempt }),
        (at(), event_id(), attempt(), dispatch()).prop_map(|(at, activity_id, attempt, dispatch)| Control::ActivityAttemptStarted {
            at,
            activity_id,
            attempt,
            dispatch
        }),
        (at(), event_id(), attempt(), failure(), at()).prop_map(|(at, activity_id, attempt, failure, retry_at)| Control::ActivityAttemptFailed {
            at,
            activity_id,
            attempt,
            failure,
            retry_at
        }),
        (at(), event_id(), attempt()).prop_map(|(at, activity_id, attempt)| Control::ActivityAttemptReleased { at, activity_id, attempt }),
        (at(), event_id(), attempt()).prop_map(|(at, activity_id, attempt)| Control::ActivityRetryDue { at, activity_id, attempt }),
        (at(), event_id(), attempt(), of(payload())).prop_map(|(at, activity_id, attempt, details)| Control::ActivityHeartbeat {
            at,
            activity_id,
            attempt,
            details
        }),
        (at(), request_id()).prop_map(|(at, request_id)| Control::RequestSeen { at, request_id }),
        (at(), any::<u32>()).prop_map(|(at, count)| Control::RequestsForgotten { at, count }),
        (at(), event_id()).prop_map(|(at, started)| Control::ChildStartConfirmed { at, started }),
        at().prop_map(|at| Control::WorkflowTaskExtended { at }),
        at().prop_map(|at| Control::SlaBreached { at }),
        (at(), at(), text()).prop_map(|(at, until, reason)| Control::Paused { at, until, reason }),
        at().prop_map(|at| Control::Resumed { at }),
    ]
}
fn record() -> impl Strategy<Value = Record> {
    prop_oneof![an_event().prop_map(Record::Event), control().prop_map(Record::Control)]
}
fn a_message() -> impl Strategy<Value = Message> {
    let outcome = prop_oneof![payload().prop_map(ChildOutcome::Completed), failure().prop_map(ChildOutcome::Failed)];
    let body = prop_oneof![
        (namespace(), child(), parent(), span()).prop_map(|(namespace, child, parent, workflow_task_timeout)| MessageBody::StartChild {
            namespace,
            child: Box::new(child),
            parent,
            workflow_task_timeout
        }),
        (event_id(), failure()).prop_map(|(initiated, failure)| MessageBody::ChildStartRefused { initiated, failure }),
        (event_id(), outcome).prop_map(|(initiated, outcome)| MessageBody::ChildClosed { initiated, outcome }),
        text().prop_map(|reason| MessageBody::CancelChild { reason }),
    ];
    (execution_id(), execution_id(), body).prop_map(|(source, target, body)| Message { source, target, body })
}
fn activity_options() -> impl Strategy<Value = ActivityOptions> {
    let spans = [of(span()), of(span()), of(span()), of(span())];
    (of(task_queue()), of(retry()), spans).prop_map(|(task_queue, retry, [start_to_close, schedule_to_start, heartbeat_timeout, schedule_to_close])| {
        ActivityOptions { task_queue, retry, start_to_close, schedule_to_start, heartbeat_timeout, schedule_to_close }
    })
}
fn a_command() -> impl Strategy<Value = Command> {
    let schedule = (activity_type(), payload(), activity_options(), activity_options(), activity_options())
        .prop_map(|(activity_type, input, options, attribute, floor)| ScheduleActivity { activity_type, input, options, attribute, floor });
    let start_child = (workflow_type(), workflow_id(), of(task_queue()), payload(), of(span()), any::<bool>()).prop_map(
        |(workflow_type, workflow_id, task_queue, input, execution_timeout, detached)| StartChildWorkflow {
            workflow_type,
            workflow_id,
            task_queue,
            input,
            execution_timeout,
            detached,
        },
    );
    prop_oneof![
        schedule.prop_map(|schedule| Command::ScheduleActivity(Box::new(schedule))),
        (activity_type(), payload()).prop_map(|(activity_type, input)| Command::ScheduleLocalActivity { activity_type, input }),
        (0usize..9, payload()).prop_map(|(command, output)| Command::CompleteLocalActivity { command, output }),
        (0usize..9, attempt(), failure()).prop_map(|(command, attempt, failure)| Command::FailLocalActivity { command, attempt, failure }),
        (0usize..9, attempt(), of(activity_timeout())).prop_map(|(command, attempt, timeout)| Command::ExhaustLocalActivity { command, attempt, timeout }),
        event_id().prop_map(|activity_id| Command::CancelActivity { activity_id }),
        (timer_name(), span()).prop_map(|(timer_id, duration)| Command::StartTimer { timer_id, duration }),
        event_id().prop_map(|started| Command::CancelTimer { started }),
        (side_effect_kind(), of("[a-z]{1,5}"), payload()).prop_map(|(kind, name, value)| Command::RecordSideEffect { kind, name, value }),
        ("[a-z]{1,9}", of(payload())).prop_map(|(name, details)| Command::RecordMarker { name, details }),
        start_child.prop_map(Command::StartChildWorkflow),
        event_id().prop_map(|started| Command::CancelChildWorkflow { started }),
        payload().prop_map(|output| Command::CompleteWorkflow { output }),
        failure().prop_map(|failure| Command::FailWorkflow { failure }),
        text().prop_map(|reason| Command::CancelWorkflow { reason }),
        (payload(), of(workflow_type()), of(task_queue())).prop_map(|(input, workflow_type, task_queue)| Command::ContinueAsNew {
            input,
            workflow_type,
            task_queue
        }),
    ]
}
fn a_token() -> impl Strategy<Value = TaskToken> {
    (execution_id(), of(event_id()), attempt(), dispatch()).prop_map(|(execution_id, activity_id, attempt, dispatch)| TaskToken {
        execution_id,
        activity_id,
        attempt,
        dispatch,
    })
}

proptest! {
    #[test]
    fn events_survive_the_wire_and_json(event in an_event()) {
        prop_assert_eq!(&event::from_proto(event::to_proto(&event)).unwrap(), &event);
        let events = [event];
        prop_assert_eq!(json::decode_history(&json::encode_history(&events)).unwrap(), events);
    }

    #[test]
    fn commands_survive_the_wire(command in a_command()) {
        prop_assert_eq!(command::from_proto(command::to_proto(&command)).unwrap(), command);
    }

    #[test]
    fn records_survive_storage(row in proptest::collection::vec(record(), 0..6)) {
        prop_assert_eq!(records::decode(&records::encode(&row)).unwrap(), row);
    }

    #[test]
    fn messages_survive_storage(message in a_message()) {
        prop_assert_eq!(message::decode(&message::encode(&message)).unwrap(), message);
    }

    #[test]
    fn tokens_survive_a_worker(token in a_token()) {
        prop_assert_eq!(token::decode(&token::encode(&token)).unwrap(), token);
    }

    #[test]
    fn garbage_is_refused_and_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let Err(error) = token::decode(&bytes) {
            prop_assert_eq!(error.field(), "task_token");
        }
        // Whatever it is, it is an answer and not a panic; a refusal names its field.
        for field in [
            records::decode(&bytes).err().map(|error| error.field().to_owned()),
            message::decode(&bytes).err().map(|error| error.field().to_owned()),
            json::decode_history(&String::from_utf8_lossy(&bytes)).err().map(|error| error.field().to_owned()),
        ] {
            prop_assert_ne!(field, Some(String::new()));
        }
    }
}
