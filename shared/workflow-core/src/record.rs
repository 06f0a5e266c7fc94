//! Records: the durable facts of a run. Its state is their fold.

use crate::event::Event;
use crate::payload::{Failure, Payload};
use harvest_ids::{ActivityId, Attempt, Epoch, RequestId, Timestamp, WorkerId};

/// A durable fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A numbered one, which workflow code can observe.
    Event(Event),
    /// An unnumbered one.
    Control(Control),
}

/// One dispatch of one attempt, as its completion names it. (epoch, sequence) tells two dispatches of one attempt apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// The owner's epoch when it dispatched.
    pub epoch: Epoch,
    /// Unique within the epoch.
    pub sequence: u64,
    /// The worker session that got the task.
    pub worker_id: WorkerId,
}

/// An unnumbered fact: it changes what is remembered, not what workflow code sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// A worker got the workflow task.
    WorkflowTaskStarted {
        /// When the owner decided it.
        at: Timestamp,
        /// Which attempt.
        attempt: Attempt,
        /// Which dispatch, and to whom.
        dispatch: Dispatch,
    },
    /// A workflow task ended without a decision and will be tried again at `retry_at`.
    WorkflowTaskFailed {
        /// When the owner decided it.
        at: Timestamp,
        /// Which attempt.
        attempt: Attempt,
        /// Why it ended.
        cause: WorkflowTaskFailure,
        /// When the next try is due.
        retry_at: Timestamp,
    },
    /// A worker got an attempt of an activity.
    ActivityAttemptStarted {
        /// When the owner decided it.
        at: Timestamp,
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which attempt.
        attempt: Attempt,
        /// Which dispatch, and to whom.
        dispatch: Dispatch,
    },
    /// An attempt failed and the next is due at `retry_at`.
    ActivityAttemptFailed {
        /// When the owner decided it.
        at: Timestamp,
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which attempt.
        attempt: Attempt,
        /// What went wrong.
        failure: Failure,
        /// When the next try is due.
        retry_at: Timestamp,
    },
    /// A worker reported progress of a running attempt; the details survive a retry.
    ActivityHeartbeat {
        /// When the owner decided it.
        at: Timestamp,
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which attempt.
        attempt: Attempt,
        /// What it reported; absent when it only showed that it lives.
        details: Option<Payload>,
    },
    /// A request id was seen by the chain, with the answer it got (for signals: the event exists; for cancel: it was asked).
    RequestSeen {
        /// When the owner decided it.
        at: Timestamp,
        /// The caller's id for the call.
        request_id: RequestId,
    },
    /// The worker gave a running attempt back untried: it waits again under the same number.
    ActivityAttemptReleased {
        /// When the owner decided it.
        at: Timestamp,
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which attempt.
        attempt: Attempt,
    },
    /// The back-off of an activity is over: `attempt` waits for a worker.
    ActivityRetryDue {
        /// When the owner decided it.
        at: Timestamp,
        /// The activity, by the event that scheduled it.
        activity_id: ActivityId,
        /// Which attempt.
        attempt: Attempt,
    },
    /// The back-off of the workflow task is over: `attempt` waits for a worker.
    WorkflowTaskRetryDue {
        /// When the owner decided it.
        at: Timestamp,
        /// Which attempt.
        attempt: Attempt,
    },
    /// The `count` oldest remembered request ids were forgotten, because the memory of the chain is bounded.
    RequestsForgotten {
        /// When the owner decided it.
        at: Timestamp,
        /// How many.
        count: u32,
    },
    /// A message of this run's child or to it was settled, so that its repetition changes nothing.
    ChildStartConfirmed {
        /// When the owner decided it.
        at: Timestamp,
        /// The event that started the child.
        started: harvest_ids::EventId,
    },
    /// The worker that has the workflow task is still at it: its time counts from here.
    WorkflowTaskExtended {
        /// When the owner decided it.
        at: Timestamp,
    },
    /// The run is late: its SLA has passed. At most once, and nothing else happens.
    SlaBreached {
        /// When the owner decided it.
        at: Timestamp,
    },
    /// Somebody paused the run: no task of it is handed out, and its clocks but the chain's stand still.
    Paused {
        /// When the owner decided it.
        at: Timestamp,
        /// When it goes on by itself.
        until: Timestamp,
        /// Why, for people.
        reason: String,
    },
    /// The run goes on.
    Resumed {
        /// When the owner decided it.
        at: Timestamp,
    },
}

/// Why a workflow task ended without a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowTaskFailure {
    /// The worker did not answer within the workflow task timeout, or is gone.
    TimedOut,
    /// The code does not match the history. The run is blocked, visibly, until a matching worker comes.
    NonDeterminism {
        /// For people.
        message: String,
        /// What the history has.
        expected: String,
        /// What the code did.
        actual: String,
        /// Where in the history.
        event_id: harvest_ids::EventId,
    },
    /// Workflow code panicked.
    Panicked {
        /// For people.
        message: String,
    },
    /// Workflow code did not come to rest in time, or the worker could not run it.
    WorkerError {
        /// For people.
        message: String,
    },
    /// The decision would have closed the run while a signal or a cancel request that it had not seen was waiting. It is tried
    /// again at once with the news, and does not count for back-off.
    UnseenNews,
}
