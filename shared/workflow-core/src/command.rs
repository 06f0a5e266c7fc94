//! Commands: what workflow code asked for in one workflow task, in the order it asked.

use crate::event::{ActivityTimeout, SideEffectKind};
use crate::payload::{Failure, Payload};
use crate::retry::RetryPolicy;
use harvest_ids::{ActivityId, ActivityType, Attempt, DurationMs, EventId, TaskQueue, TimerName, WorkflowId, WorkflowType};

/// One thing that workflow code asked for.
///
/// A command that refers to something that an earlier command of the same task created names it by the event id it will have:
/// the events of a decision follow its `WorkflowTaskCompleted` in the order of its commands, one event each, so the SDK knows them.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Run an activity.
    ScheduleActivity(Box<ScheduleActivity>),
    /// Ask a scheduled activity to stop.
    CancelActivity {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
    },
    /// Note an activity that the worker runs on the spot, within this task.
    ScheduleLocalActivity {
        /// The function.
        activity_type: ActivityType,
        /// The argument.
        input: Payload,
    },
    /// A local activity has a result.
    CompleteLocalActivity {
        /// The command of this decision that scheduled it, counted from 0.
        command: usize,
        /// The result.
        output: Payload,
    },
    /// An attempt of a local activity has failed.
    FailLocalActivity {
        /// The command of this decision that scheduled it, counted from 0.
        command: usize,
        /// Which attempt.
        attempt: Attempt,
        /// What went wrong.
        failure: Failure,
    },
    /// A local activity is not tried again after its last failed attempt.
    ExhaustLocalActivity {
        /// The command of this decision that scheduled it, counted from 0.
        command: usize,
        /// The last attempt.
        attempt: Attempt,
        /// The limit that the last attempt ran into, if it did.
        timeout: Option<ActivityTimeout>,
    },
    /// Start a durable timer.
    StartTimer {
        /// The author's label.
        timer_id: TimerName,
        /// How long after its start it fires.
        duration: DurationMs,
    },
    /// Stop the timer that event `started` started.
    CancelTimer {
        /// The event that started it.
        started: EventId,
    },
    /// Record a value taken from outside.
    RecordSideEffect {
        /// Where the value came from.
        kind: SideEffectKind,
        /// Its name.
        name: Option<String>,
        /// The value.
        value: Payload,
    },
    /// Record a note of the SDK.
    RecordMarker {
        /// Its name.
        name: String,
        /// What the author or the SDK put in, if anything.
        details: Option<Payload>,
    },
    /// Start a child run.
    StartChildWorkflow(StartChildWorkflow),
    /// Ask a child to cancel itself.
    CancelChildWorkflow {
        /// The event that started it.
        started: EventId,
    },
    /// End with a result. Must be the last command.
    CompleteWorkflow {
        /// The result.
        output: Payload,
    },
    /// End with a failure. Must be the last command.
    FailWorkflow {
        /// What went wrong.
        failure: Failure,
    },
    /// End because cancelling was asked for. Must be the last command.
    CancelWorkflow {
        /// Why, for people.
        reason: String,
    },
    /// End by starting a successor. Must be the last command.
    ContinueAsNew {
        /// The argument.
        input: Payload,
        /// The function, or the one so far.
        workflow_type: Option<WorkflowType>,
        /// The queue, or the one so far.
        task_queue: Option<TaskQueue>,
    },
}

/// An activity as its caller wants it. What the call site leaves open is filled by [`crate::defaults`].
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleActivity {
    /// The function.
    pub activity_type: ActivityType,
    /// The argument.
    pub input: Payload,
    /// Options of the call site.
    pub options: ActivityOptions,
    /// Those of the activity's attribute, as far as the caller's worker knows it; what is registered wins over it.
    pub attribute: ActivityOptions,
    /// The caller's worker's floor: only `retry` and `start_to_close` count.
    pub floor: ActivityOptions,
}

/// Options of an activity, each absent unless somebody set it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActivityOptions {
    /// The queue; the run's own when absent.
    pub task_queue: Option<TaskQueue>,
    /// How it is retried; [`RetryPolicy::default`] when absent.
    pub retry: Option<RetryPolicy>,
    /// The longest one attempt may take.
    pub start_to_close: Option<DurationMs>,
    /// The longest the first attempt may wait in the queue.
    pub schedule_to_start: Option<DurationMs>,
    /// The longest silence between heartbeats.
    pub heartbeat_timeout: Option<DurationMs>,
    /// The longest all attempts and the delays between them may take, from the schedule on.
    pub schedule_to_close: Option<DurationMs>,
}

/// A child as its parent wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct StartChildWorkflow {
    /// The child's function.
    pub workflow_type: WorkflowType,
    /// The child's business key.
    pub workflow_id: WorkflowId,
    /// The queue, or the parent's own.
    pub task_queue: Option<TaskQueue>,
    /// The argument.
    pub input: Payload,
    /// The child's execution timeout.
    pub execution_timeout: Option<DurationMs>,
    /// The parent does not wait for its outcome.
    pub detached: bool,
}
