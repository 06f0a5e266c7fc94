//! What `decide` returns.

use crate::event::WorkflowStarted;
use crate::input::Carried;
use crate::message::Message;
use crate::record::Record;
use harvest_ids::{Attempt, DurationMs, EventId, ExecutionId};

/// The outcome of one input: all of it becomes durable together, or none.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// New durable facts, already applied to the state that `decide` was given.
    pub records: Vec<Record>,
    /// Messages to other runs.
    pub messages: Vec<Message>,
    /// A successor to create in the same commit (continue-as-new): the engine runs `Input::Start` with it on an empty state.
    pub successor: Option<Box<Successor>>,
    /// What the caller is told once it is durable.
    pub reply: Reply,
}

/// The next run of the chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Successor {
    /// Its first event.
    pub started: WorkflowStarted,
    /// What it inherits.
    pub carried: Carried,
}

/// What the caller of an input is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// It is done, or nothing needed doing.
    Done,
    /// The input repeats an earlier one (request id, stale wake, redelivered message): nothing changed.
    Duplicate,
    /// The workflow task was taken: give the worker the events after what it has.
    WorkflowTask {
        /// Which attempt.
        attempt: Attempt,
        /// The last event of the history that the worker must have.
        last_event: EventId,
        /// Where the previous decision's worker stood: a sticky worker has everything up to and including this event's decision.
        previous_decision: EventId,
        /// How long the worker may keep it.
        timeout: DurationMs,
    },
    /// The activity attempt was taken. `durable_first`: the start must be committed before the worker gets it.
    ActivityTask {
        /// Which attempt.
        attempt: Attempt,
        /// The start must be committed before the worker gets the task.
        durable_first: bool,
    },
    /// The decision would have closed the run over news that it had not seen: the task is ready again, with that news.
    TryAgain,
    /// A heartbeat or announcement was accepted; whether the attempt should stop.
    Progress {
        /// Whether the attempt should stop.
        cancel_requested: bool,
    },
}

/// Why an input was refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    /// The run has ended.
    #[error("the run is closed ({status})")]
    Closed {
        /// How it ended.
        status: crate::state::Status,
        /// Its successor, when it continued as new.
        continued_as: Option<ExecutionId>,
    },
    /// The completion answers a dispatch that is not the current one, or comes from another worker than got it.
    #[error("stale task: {reason}")]
    StaleTask {
        /// What did not match.
        reason: &'static str,
    },
    /// The task that somebody wanted to take is not pending (any more).
    #[error("the task is not pending")]
    NotPending,
    /// A command is malformed; the workflow task fails and is tried again.
    #[error("command {index}: {message}")]
    BadCommand {
        /// Its position, from 0.
        index: usize,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// A decision as a whole is malformed (a signal that it cannot have taken); the workflow task fails and is tried again.
    #[error("malformed decision: {message}")]
    BadDecision {
        /// What is wrong and what is allowed.
        message: String,
    },
    /// A start of a run that another request has started already.
    #[error("the run was already started by another request")]
    AlreadyStarted,
    /// A bound was reached.
    #[error("{limit} reached: {found} of at most {allowed}")]
    Limit {
        /// The bound's name in the configuration.
        limit: &'static str,
        /// What was asked for.
        found: u64,
        /// The bound.
        allowed: u64,
    },
    /// The run does not exist.
    #[error("the run does not exist")]
    NotFound,
}
