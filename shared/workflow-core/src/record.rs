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
    WorkflowTaskStarted { at: Timestamp, attempt: Attempt, dispatch: Dispatch },
    /// A workflow task ended without a decision and will be tried again at `retry_at`.
    WorkflowTaskFailed { at: Timestamp, attempt: Attempt, cause: WorkflowTaskFailure, retry_at: Timestamp },
    /// A worker got an attempt of an activity.
    ActivityAttemptStarted { at: Timestamp, activity_id: ActivityId, attempt: Attempt, dispatch: Dispatch },
    /// An attempt failed and the next is due at `retry_at`.
    ActivityAttemptFailed { at: Timestamp, activity_id: ActivityId, attempt: Attempt, failure: Failure, retry_at: Timestamp },
    /// A worker reported progress of a running attempt; the details survive a retry.
    ActivityHeartbeat { at: Timestamp, activity_id: ActivityId, attempt: Attempt, details: Option<Payload> },
    /// A request id was seen by the chain, with the answer it got (for signals: the event exists; for cancel: it was asked).
    RequestSeen { at: Timestamp, request_id: RequestId },
    /// The worker gave a running attempt back untried: it waits again under the same number.
    ActivityAttemptReleased { at: Timestamp, activity_id: ActivityId, attempt: Attempt },
    /// The back-off of an activity is over: `attempt` waits for a worker.
    ActivityRetryDue { at: Timestamp, activity_id: ActivityId, attempt: Attempt },
    /// The back-off of the workflow task is over: `attempt` waits for a worker.
    WorkflowTaskRetryDue { at: Timestamp, attempt: Attempt },
    /// The `count` oldest remembered request ids were forgotten, because the memory of the chain is bounded.
    RequestsForgotten { at: Timestamp, count: u32 },
    /// A message of this run's child or to it was settled, so that its repetition changes nothing.
    ChildStartConfirmed { at: Timestamp, started: harvest_ids::EventId },
}

/// Why a workflow task ended without a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowTaskFailure {
    /// The worker did not answer within the workflow task timeout, or is gone.
    TimedOut,
    /// The code does not match the history. The run is blocked, visibly, until a matching worker comes.
    NonDeterminism { message: String, expected: String, actual: String, event_id: harvest_ids::EventId },
    /// Workflow code panicked.
    Panicked { message: String },
    /// Workflow code did not come to rest in time, or the worker could not run it.
    WorkerError { message: String },
    /// The decision would have closed the run while a signal or a cancel request that it had not seen was waiting. It is tried
    /// again at once with the news, and does not count for back-off.
    UnseenNews,
}
