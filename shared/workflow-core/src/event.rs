//! Events: the numbered facts of a run that workflow code can observe and replay reads.
//!
//! Variants may gain optional fields and siblings, never change: histories live as long as their runs.

use crate::payload::{Failure, Payload};
use crate::retry::RetryPolicy;
use harvest_ids::{
    ActivityId, ActivityType, Attempt, DurationMs, EventId, ExecutionId, Namespace, RequestId, SignalName, TaskQueue, TimerName, Timestamp, WorkerId,
    WorkflowId, WorkflowType,
};

/// One numbered fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number in the run: dense from 1.
    pub id: EventId,
    /// When the owner decided it. Never decreases within a run.
    pub at: Timestamp,
    /// The fact.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The first event of every run.
    WorkflowStarted(Box<WorkflowStarted>),
    /// A worker finished a workflow task: the events of its commands follow directly.
    WorkflowTaskCompleted(WorkflowTaskCompleted),
    /// The run ended with a result.
    WorkflowCompleted {
        /// The result.
        output: Payload,
    },
    /// The run ended with a failure.
    WorkflowFailed {
        /// What went wrong.
        failure: Failure,
    },
    /// Somebody asked the run to cancel itself; workflow code sees it.
    WorkflowCancelRequested {
        /// Why, for people.
        reason: String,
    },
    /// The run ended by cancelling itself.
    WorkflowCancelled {
        /// Why, for people.
        reason: String,
    },
    /// The run was ended from outside, without asking it.
    WorkflowTerminated {
        /// Why, for people.
        reason: String,
    },
    /// The run's execution timeout passed.
    WorkflowExecutionTimedOut {
        /// Which limit.
        timeout: WorkflowTimeout,
    },
    /// The run ended by starting its successor.
    WorkflowContinuedAsNew {
        /// The successor.
        new_execution_id: ExecutionId,
        /// The successor's function, when it is another one.
        new_workflow_type: Option<WorkflowType>,
        /// The argument.
        input: Payload,
    },
    /// Workflow code asked for an activity.
    ActivityScheduled(Box<ActivityScheduled>),
    /// An activity ended with a result.
    ActivityCompleted {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// The result.
        output: Payload,
    },
    /// An activity failed and will not be retried.
    ActivityFailed {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which attempt.
        attempt: Attempt,
        /// What went wrong.
        failure: Failure,
    },
    /// An activity ran out of time and will not be retried.
    ActivityTimedOut {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which attempt.
        attempt: Attempt,
        /// Which limit.
        timeout: ActivityTimeout,
    },
    /// An activity that was asked to cancel has ended without a result.
    ActivityCancelled {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
    },
    /// Workflow code asked to cancel an activity that it scheduled.
    ActivityCancelRequested {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
    },
    /// Workflow code asked for an activity that its worker ran on the spot, within the decision.
    LocalActivityScheduled {
        /// The function.
        activity_type: ActivityType,
        /// The argument.
        input: Payload,
    },
    /// A local activity ended with a result.
    LocalActivityCompleted {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// The result.
        output: Payload,
    },
    /// An attempt of a local activity failed.
    LocalActivityFailed {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which attempt.
        attempt: Attempt,
        /// What went wrong.
        failure: Failure,
    },
    /// A local activity was not tried again after its last failed attempt.
    LocalActivityExhausted {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// The last attempt.
        attempt: Attempt,
        /// The limit that it ran into, if it did.
        timeout: Option<ActivityTimeout>,
    },
    /// Workflow code started a durable timer.
    TimerStarted {
        /// The author's label.
        timer_id: TimerName,
        /// How long after its start it fires.
        duration: DurationMs,
    },
    /// The timer started by event `started` fired.
    TimerFired {
        /// The author's label.
        timer_id: TimerName,
        /// The event that started it.
        started: EventId,
    },
    /// Workflow code cancelled the timer started by event `started`.
    TimerCancelled {
        /// The author's label.
        timer_id: TimerName,
        /// The event that started it.
        started: EventId,
    },
    /// A signal arrived.
    SignalReceived {
        /// Its name.
        name: SignalName,
        /// What it carries.
        payload: Payload,
        /// The caller's id for the call.
        request_id: Option<RequestId>,
    },
    /// A value that workflow code took from outside, recorded so that replay sees the same.
    SideEffectRecorded {
        /// Where the value came from.
        kind: SideEffectKind,
        /// Its name.
        name: Option<String>,
        /// The value.
        value: Payload,
    },
    /// A named note of the SDK (versions, fan-outs, ...).
    MarkerRecorded {
        /// Its name.
        name: String,
        /// What the author or the SDK put in, if anything.
        details: Option<Payload>,
    },
    /// Workflow code asked for a child whose outcome it can await.
    ChildWorkflowStarted {
        /// The child as it was asked for.
        child: ChildWorkflow,
    },
    /// Workflow code asked for a child that lives on its own.
    ChildWorkflowSpawnedDetached {
        /// The child as it was asked for.
        child: ChildWorkflow,
    },
    /// An awaited child ended with a result.
    ChildWorkflowCompleted {
        /// The event that started it.
        started: EventId,
        /// The result.
        output: Payload,
    },
    /// An awaited child ended otherwise, or could not be started. `failure.error_type` says how: the child's own type, or
    /// `ChildCancelled`, `ChildTerminated`, `ChildTimedOut`, `ChildAlreadyRunning`, `UnknownWorkflowType`.
    ChildWorkflowFailed {
        /// The event that started it.
        started: EventId,
        /// What went wrong.
        failure: Failure,
    },
    /// Workflow code asked to cancel a child that it started.
    ChildWorkflowCancelRequested {
        /// The event that started it.
        started: EventId,
    },
}

/// The fields of the first event: all that a run was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowStarted {
    /// The tenant.
    pub namespace: Namespace,
    /// The function that runs.
    pub workflow_type: WorkflowType,
    /// The business key.
    pub workflow_id: WorkflowId,
    /// This run.
    pub execution_id: ExecutionId,
    /// The first run of the chain: this run unless it continues another.
    pub first_execution_id: ExecutionId,
    /// The run that this one continues.
    pub continued_from: Option<ExecutionId>,
    /// The parent, for a child run.
    pub parent: Option<Parent>,
    /// Where its workflow tasks wait, and its activities unless they name another queue.
    pub task_queue: TaskQueue,
    /// The argument.
    pub input: Payload,
    /// The caller's id for the start.
    pub request_id: Option<RequestId>,
    /// The effective execution timeout, after clamps.
    pub execution_timeout: Option<DurationMs>,
    /// How long one workflow task may stay with a worker.
    pub workflow_task_timeout: DurationMs,
    /// The longest the whole chain may live: as declared, then after clamps and the fleet's default.
    pub chain_execution_timeout: Option<DurationMs>,
    /// When the chain's time is up, whichever run it has come to: counted from the start of its first run and handed on unchanged.
    pub chain_deadline: Option<Timestamp>,
    /// After how long the run counts as late; never above its execution timeout. Nothing happens to the run then.
    pub sla: Option<DurationMs>,
    /// The `config_version` whose limits were used: (generation, number).
    pub config_version: (u64, u64),
}

impl WorkflowStarted {
    /// The first event of a child run, as its parent's start message asks for it. The owner adds what the child's attribute says, and
    /// `config_version`, when it decides.
    pub fn of_child(namespace: &Namespace, child: &ChildWorkflow, parent: &Parent, workflow_task_timeout: DurationMs) -> Self {
        Self {
            namespace: namespace.clone(),
            workflow_type: child.workflow_type.clone(),
            workflow_id: child.workflow_id.clone(),
            execution_id: child.execution_id,
            first_execution_id: child.execution_id,
            continued_from: None,
            parent: Some(parent.clone()),
            task_queue: child.task_queue.clone(),
            input: child.input.clone(),
            request_id: None,
            execution_timeout: child.execution_timeout,
            workflow_task_timeout,
            chain_execution_timeout: None,
            chain_deadline: None,
            sla: None,
            config_version: (0, 0),
        }
    }
}

/// The run that a child belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The parent's run.
    pub execution_id: ExecutionId,
    /// The parent's event that asked for the child: the natural key of the start.
    pub initiated: EventId,
    /// Nobody waits for the child's outcome.
    pub detached: bool,
}

/// Marks where a decision's commands begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowTaskCompleted {
    /// The worker session that decided.
    pub worker_id: WorkerId,
    /// The worker's build.
    pub build_id: String,
    /// The worker's SDK, e.g. `harvest-rust/0.1.0`.
    pub sdk: String,
    /// The last event that the worker had seen when it decided.
    pub seen: EventId,
    /// Events of signals that workflow code took in this decision; they do not travel to a successor.
    pub consumed_signals: Vec<EventId>,
}

/// What an activity was scheduled with. Resolved at schedule time and kept with the activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityScheduled {
    /// The function.
    pub activity_type: ActivityType,
    /// The argument.
    pub input: Payload,
    /// Where its tasks wait.
    pub task_queue: TaskQueue,
    /// How failures and timed out attempts are retried.
    pub retry: RetryPolicy,
    /// The longest one attempt may take.
    pub start_to_close: Option<DurationMs>,
    /// The longest the first attempt may wait in the queue.
    pub schedule_to_start: Option<DurationMs>,
    /// The longest silence between heartbeats of one attempt.
    pub heartbeat_timeout: Option<DurationMs>,
    /// The longest all attempts and the delays between them may take, from the schedule on.
    pub schedule_to_close: Option<DurationMs>,
}

/// Which limit an activity ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityTimeout {
    /// One attempt took too long.
    StartToClose,
    /// Nobody took it from the queue in time. Final.
    ScheduleToStart,
    /// All attempts and back-offs together took too long. Final.
    ScheduleToClose,
    /// The worker stopped sending heartbeats.
    Heartbeat,
}

/// Which limit a run ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkflowTimeout {
    /// `execution_timeout`, of this run.
    Execution,
    /// `chain_execution_timeout`, of all runs of the chain.
    Chain,
}

/// Where a recorded value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffectKind {
    /// The worker's clock.
    Now,
    /// A new UUID.
    Uuid,
    /// A random number.
    Random,
    /// A closure of the author's.
    Custom,
}

/// A child as its parent asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildWorkflow {
    /// The child's run, chosen with the parent's decision.
    pub execution_id: ExecutionId,
    /// The child's function.
    pub workflow_type: WorkflowType,
    /// The child's business key.
    pub workflow_id: WorkflowId,
    /// Where its tasks wait.
    pub task_queue: TaskQueue,
    /// The argument.
    pub input: Payload,
    /// The child's execution timeout as asked for.
    pub execution_timeout: Option<DurationMs>,
}
