//! Inputs: anything that reaches a run.

use crate::command::Command;
use crate::defaults::Types;
use crate::event::WorkflowStarted;
use crate::limits::Limits;
use crate::machine::pause::Pause;
use crate::message::{ChildOutcome, Message};
use crate::payload::{Failure, Payload};
use crate::record::{Dispatch, WorkflowTaskFailure};
use harvest_ids::{ActivityId, Attempt, DurationMs, EventId, ExecutionId, RequestId, SignalName, Timestamp, WorkerId};

/// Time, randomness and bounds of one decision.
#[derive(Debug, Clone)]
pub struct Env<'a> {
    /// The owner's clock. May go backwards: only timestamps notice.
    pub now: Timestamp,
    /// 64 fresh random bits; the core derives all jitter and new ids from them, deterministically.
    pub random: u64,
    /// The bounds in force.
    pub limits: &'a Limits,
    /// The version of the configuration that `limits` come from: (generation, number).
    pub config_version: (u64, u64),
    /// What attributes of the run's tenant say, as workers have registered them.
    pub types: &'a Types,
}

/// Anything that reaches a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Become a run. The engine has checked that no open run holds the business key; only valid on [`crate::state::State::empty`].
    /// `carried` is what a predecessor handed over: unread signals in order and the chain's request ids, oldest first.
    Start {
        /// Its first event; `config_version` is set by the decision.
        started: Box<WorkflowStarted>,
        /// What a predecessor handed over.
        carried: Carried,
    },
    /// Somebody sends a signal.
    Signal {
        /// Its name.
        name: SignalName,
        /// What it carries.
        payload: Payload,
        /// The caller's id for the call.
        request_id: Option<RequestId>,
    },
    /// Somebody asks the run to cancel itself.
    RequestCancel {
        /// Why, for people.
        reason: String,
        /// The caller's id for the call.
        request_id: Option<RequestId>,
    },
    /// Somebody ends the run.
    Terminate {
        /// Why, for people.
        reason: String,
        /// The caller's id for the call.
        request_id: Option<RequestId>,
    },
    /// Somebody pauses the run.
    Pause {
        /// When it goes on by itself; the longest pause when absent.
        longest: Option<DurationMs>,
        /// Why, for people.
        reason: String,
        /// The caller's id for the call.
        request_id: Option<RequestId>,
    },
    /// Somebody lets a paused run go on.
    Resume {
        /// The caller's id for the call.
        request_id: Option<RequestId>,
    },
    /// A worker takes the pending workflow task.
    StartWorkflowTask {
        /// Which dispatch, and to whom.
        dispatch: Dispatch,
    },
    /// A worker has decided. `seen` is the last event id it had.
    CompleteWorkflowTask(Box<CompleteWorkflowTask>),
    /// A worker could not decide.
    FailWorkflowTask {
        /// The task that is answered, as it was given out.
        token: TaskToken,
        /// The session that answers.
        worker_id: WorkerId,
        /// Why it ended.
        cause: WorkflowTaskFailure,
    },
    /// A worker takes the pending attempt of an activity.
    StartActivity {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which dispatch, and to whom.
        dispatch: Dispatch,
    },
    /// An attempt ended.
    CloseActivity {
        /// The task that is answered, as it was given out.
        token: TaskToken,
        /// The session that answers.
        worker_id: WorkerId,
        /// How it ended.
        outcome: ActivityOutcome,
    },
    /// A running attempt reports progress.
    Heartbeat {
        /// The task that is answered, as it was given out.
        token: TaskToken,
        /// The session that answers.
        worker_id: WorkerId,
        /// What it reports; absent when it only shows that it lives.
        details: Option<Payload>,
    },
    /// A worker announces that it is running the attempt. Writes nothing unless the attempt's start was lost with the previous owner: then it is adopted.
    AnnounceActivity {
        /// The task that is answered, as it was given out.
        token: TaskToken,
        /// The session that answers.
        worker_id: WorkerId,
    },
    /// The worker of the attempt has been silent for too long.
    ActivityLost {
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which attempt.
        attempt: Attempt,
    },
    /// Look at the clock: everything due at `env.now` happens, in order of its deadline.
    Wake,
    /// A message from another run.
    Message(Box<Message>),
}

/// What a successor inherits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Carried {
    /// Unread signals in the order they arrived.
    pub signals: Vec<CarriedSignal>,
    /// The chain's remembered request ids with when they were seen, oldest first.
    pub request_ids: Vec<(RequestId, Timestamp)>,
    /// Cancelling was asked for and the predecessor did not see it.
    pub cancel_requested: Option<String>,
    /// The predecessor is paused, and so is its successor.
    pub paused: Option<Pause>,
}

/// One unread signal.
#[derive(Debug, Clone, PartialEq)]
pub struct CarriedSignal {
    /// Its name.
    pub name: SignalName,
    /// Its payload.
    pub payload: Payload,
    /// The id it was sent with.
    pub request_id: Option<RequestId>,
}

/// Names one dispatch of one attempt of a task: opaque to workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskToken {
    /// The run.
    pub execution_id: ExecutionId,
    /// The activity, or `None` for a workflow task.
    pub activity_id: Option<ActivityId>,
    /// The attempt.
    pub attempt: Attempt,
    /// Which dispatch of it.
    pub dispatch: Dispatch,
}

/// A worker's decision.
#[derive(Debug, Clone, PartialEq)]
pub struct CompleteWorkflowTask {
    /// The task it answers.
    pub token: TaskToken,
    /// The session that answers: must be the one that got the task.
    pub worker_id: WorkerId,
    /// The worker's build.
    pub build_id: String,
    /// The worker's SDK.
    pub sdk: String,
    /// Signals that workflow code took, by their event.
    pub consumed_signals: Vec<EventId>,
    /// What it asked for, in order.
    pub commands: Vec<Command>,
}

/// How an attempt of an activity ended.
#[derive(Debug, Clone, PartialEq)]
pub enum ActivityOutcome {
    /// With a result.
    Completed(Payload),
    /// With a failure; `retry_after` overrides the next delay.
    Failed {
        /// What went wrong.
        failure: Failure,
        /// The delay before the next attempt, instead of the policy's; at most 15 minutes count.
        retry_after: Option<DurationMs>,
    },
    /// Because cancelling was asked for.
    Cancelled,
    /// The worker is draining and gives the task back untried: the attempt does not count.
    Released,
}

impl From<ChildOutcome> for Result<Payload, Failure> {
    fn from(outcome: ChildOutcome) -> Self {
        match outcome {
            ChildOutcome::Completed(output) => Ok(output),
            ChildOutcome::Failed(failure) => Err(failure),
        }
    }
}
