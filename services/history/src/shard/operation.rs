//! What a shard can be asked, and what it answers.

use harvest_ids::{ActivityId, Attempt, DurationMs, EventId, ExecutionId, Namespace, QueryName, RequestId, TaskQueue, Timestamp, WorkerId};
pub use harvest_persistence::store::BusinessKey;
use harvest_wire::worker::DecisionAhead;
use harvest_workflow_core::decision::Reject;
use harvest_workflow_core::event::{ActivityScheduled, Event};
use harvest_workflow_core::input::{Input, TaskToken};
use harvest_workflow_core::machine::pause::Pause;
use harvest_workflow_core::message::Message;
use harvest_workflow_core::payload::{Failure, Payload};
use harvest_workflow_core::projection::Block;
use harvest_workflow_core::record::Dispatch;
use harvest_workflow_core::state::{Outcome, Status};
use std::collections::BTreeSet;
use tokio::sync::oneshot;

/// Where an answer goes.
pub type Responder = oneshot::Sender<Result<Answer, Refusal>>;

/// Which run an operation is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// This run.
    Execution(ExecutionId),
    /// This run, if it is of this namespace: ids are no way around namespaces.
    ExecutionOf(Namespace, ExecutionId),
    /// The open run of a business key, else its newest closed one.
    Key(BusinessKey),
}

/// Something to do with a run.
#[derive(Debug)]
pub enum Operation {
    /// Start a run.
    Start(Box<StartOperation>),
    /// Let the core decide about an input of an existing run.
    Input {
        /// Which run.
        target: Target,
        /// Whether to follow continue-as-new to the live run.
        follow_chain: bool,
        /// What reached it.
        input: Input,
    },
    /// A worker answers a task and may be given more work by the answer to that.
    Eager(Box<EagerOperation>),
    /// A worker has room: hand it the task if it is still pending.
    TakeTask {
        /// The run.
        execution_id: ExecutionId,
        /// The activity, or the workflow task.
        activity_id: Option<ActivityId>,
        /// The session that will get it.
        worker_id: WorkerId,
    },
    /// A worker has room for a query.
    TakeQuery {
        /// Its number.
        sequence: u64,
        /// The run.
        execution_id: ExecutionId,
        /// The session that will get it.
        worker_id: WorkerId,
    },
    /// What is known of a run.
    Describe(Target),
    /// Which run it is and how far it has come.
    Locate(Target),
    /// The outcome of one run, when it has one.
    AwaitClose(Target),
    /// Ask workflow code.
    Query {
        /// Which run.
        target: Target,
        /// Which query.
        name: QueryName,
        /// Its argument.
        args: Payload,
        /// For how long to wait for a worker.
        timeout: DurationMs,
    },
    /// What workflow code said.
    AnswerQuery {
        /// The query.
        token: TaskToken,
        /// The session that answers.
        worker_id: WorkerId,
        /// What it said.
        outcome: Result<Payload, Failure>,
    },
    /// Attempts that a session is running.
    Announce {
        /// The session.
        worker_id: WorkerId,
        /// Their tokens.
        tokens: Vec<TaskToken>,
    },
    /// A message from a run, maybe of another shard.
    Deliver {
        /// The message.
        message: Box<Message>,
        /// For the start of a child: the loop has looked for a run that holds the child's business key.
        key_looked_up: bool,
    },
}

/// A worker's answer, with what it would do next at once.
#[derive(Debug, Clone)]
pub struct EagerOperation {
    /// The answer: [`Input::CompleteWorkflowTask`] or [`Input::CloseActivity`].
    pub input: Input,
    /// Which commands (of the input, or of the decision ahead) schedule an activity that the worker wants.
    pub eager_commands: BTreeSet<usize>,
    /// What workflow code decides about the activity's result.
    pub ahead: Option<DecisionAhead>,
}

impl EagerOperation {
    /// Which task is answered, and by whom.
    pub(crate) fn answers(&self) -> Option<(&TaskToken, &WorkerId)> {
        match &self.input {
            Input::CompleteWorkflowTask(complete) => Some((&complete.token, &complete.worker_id)),
            Input::CloseActivity { token, worker_id, .. } => Some((token, worker_id)),
            _ => None,
        }
    }
}

/// A start as its caller wants it.
#[derive(Debug, Clone)]
pub struct StartOperation {
    /// Business key.
    pub key: BusinessKey,
    /// Argument.
    pub input: Payload,
    /// Queue.
    pub task_queue: TaskQueue,
    /// The caller's id.
    pub request_id: Option<RequestId>,
    /// Execution timeout as asked for.
    pub execution_timeout: Option<DurationMs>,
    /// Declared lifetime of the chain that it begins.
    pub chain_execution_timeout: Option<DurationMs>,
    /// After how long the run counts as late, as asked for.
    pub sla: Option<DurationMs>,
    /// How long one workflow task may stay with a worker.
    pub workflow_task_timeout: DurationMs,
    /// An open run of the same key is an error.
    pub fail_on_conflict: bool,
    /// The session that gets the first workflow task with the answer, if it can be given.
    pub eager_worker: Option<WorkerId>,
}

/// What a shard answers once it is durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The run that was started or found.
    Started {
        /// The run.
        execution_id: ExecutionId,
        /// Its state.
        status: Status,
        /// Whether this call (or an earlier one with its request id) started it.
        fresh: bool,
        /// The run's first workflow task, for the eager worker: taken when the start has committed.
        task: Option<Box<TakenWorkflowTask>>,
    },
    /// The input is decided.
    Decided {
        /// The run that took it.
        execution_id: ExecutionId,
        /// False when it repeated an earlier one.
        fresh: bool,
        /// The worker's decision was sent back: a new task comes.
        try_again: bool,
        /// The running attempt should stop.
        cancel_requested: bool,
    },
    /// The worker's decision is taken, and this is what it gets by it.
    Given(Box<Given>),
    /// A workflow task for the worker.
    WorkflowTask(Box<TakenWorkflowTask>),
    /// An activity task for the worker.
    ActivityTask(Box<TakenActivityTask>),
    /// A query for the worker.
    QueryTask(Box<TakenQuery>),
    /// There is nothing to take (any more).
    Gone,
    /// What is known of a run.
    Described(Box<RunView>),
    /// Which run it is and how far it has come.
    Located {
        /// The run.
        execution_id: ExecutionId,
        /// Its state.
        status: Status,
        /// Its newest event.
        last_event: EventId,
    },
    /// The run has ended.
    Closed(Box<ClosedView>),
    /// What workflow code said.
    QueryAnswered(Result<Payload, Failure>),
    /// What is known of announced attempts.
    Announced {
        /// Should stop.
        cancel_requested: Vec<TaskToken>,
        /// Are not the worker's any more.
        lost: Vec<TaskToken>,
    },
}

/// What a worker gets by its decision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Given {
    /// The decision was sent back: a new task comes.
    pub try_again: bool,
    /// Activities that are the worker's now.
    pub activities: Vec<TakenActivityTask>,
    /// Events after those that the decision had seen, when they are in memory.
    pub new_events: Vec<Event>,
    /// When the decision was recorded.
    pub decided_at: Timestamp,
    /// Activities that are started, and added to the above, when the decision has committed.
    pub(crate) to_start: Vec<ActivityId>,
    /// The dispatch of the workflow task that a decision ahead took and completed.
    pub(crate) own_dispatch: Option<Dispatch>,
}

/// A workflow task as taken.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenWorkflowTask {
    /// Names it.
    pub token: TaskToken,
    /// The run.
    pub run: RunView,
    /// First event that the worker needs.
    pub first_event: EventId,
    /// The events, when they are in memory; otherwise they are read from the store.
    pub events: Option<Vec<Event>>,
    /// Last event of the task.
    pub last_event: EventId,
    /// How long the worker has.
    pub timeout: DurationMs,
    /// Since when.
    pub started_at: Timestamp,
}

/// An activity task as taken.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenActivityTask {
    /// Names it.
    pub token: TaskToken,
    /// The run.
    pub run: RunView,
    /// What was scheduled.
    pub spec: ActivityScheduled,
    /// Details of an earlier attempt's heartbeat.
    pub heartbeat_details: Option<Payload>,
    /// Why the previous attempt failed.
    pub previous_failure: Option<Failure>,
    /// Since when it runs.
    pub started_at: Timestamp,
    /// When the activity's time is up, whatever its attempts do.
    pub closes_at: Option<Timestamp>,
}

/// A query as taken.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenQuery {
    /// Names it.
    pub token: TaskToken,
    /// The run.
    pub run: RunView,
    /// Which query.
    pub name: QueryName,
    /// Its argument.
    pub args: Payload,
    /// Last event that the answer must reflect.
    pub last_event: EventId,
}

/// What is known of a run without its history.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// The run.
    pub execution_id: ExecutionId,
    /// Business key.
    pub key: BusinessKey,
    /// First run of its chain.
    pub first_execution_id: ExecutionId,
    /// Parent, for a child.
    pub parent_execution_id: Option<ExecutionId>,
    /// Queue.
    pub task_queue: TaskQueue,
    /// State.
    pub status: Status,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// Its newest event.
    pub last_event: EventId,
    /// Its successor.
    pub continued_as: Option<ExecutionId>,
    /// Effective execution timeout.
    pub execution_timeout: Option<DurationMs>,
    /// When that ends it.
    pub execution_deadline: Option<Timestamp>,
    /// After how long it counts as late.
    pub sla: Option<DurationMs>,
    /// When it does.
    pub sla_deadline: Option<Timestamp>,
    /// When it was found to be late.
    pub sla_breached_at: Option<Timestamp>,
    /// The pause it is in.
    pub pause: Option<Pause>,
    /// Why it is blocked, if it is.
    pub blocked: Option<Block>,
    /// Open activities; only filled by [`Operation::Describe`].
    pub activities: Vec<ActivityView>,
}

/// An activity that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivityView {
    /// The event that scheduled it.
    pub activity_id: ActivityId,
    /// Its type.
    pub activity_type: String,
    /// Current attempt.
    pub attempt: Attempt,
    /// `SCHEDULED`, `STARTED` or `BACKING_OFF`.
    pub state: &'static str,
    /// Who runs it.
    pub worker_id: Option<WorkerId>,
    /// When the next attempt is due.
    pub retry_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub last_failure: Option<Failure>,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedView {
    /// The run.
    pub execution_id: ExecutionId,
    /// How.
    pub outcome: Outcome,
    /// When.
    pub closed_at: Timestamp,
}

/// What a shard says instead of an answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// This process does not own the shard (any more). Whether the operation took effect is not known.
    #[error("this process does not own the shard")]
    NotOwner,
    /// The store cannot be reached.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The store has been away for longer than callers are made to wait, and nothing is decided until it is back. Whether an operation
    /// that was waiting took effect is not known.
    #[error("the store is away; whether the operation took effect is not known")]
    StoreAway,
    /// A bound of the shard was reached; try again later.
    #[error("{limit} reached")]
    Overloaded {
        /// Its name in the configuration.
        limit: &'static str,
    },
    /// No such run.
    #[error("no such workflow run")]
    NotFound,
    /// Another run holds the business key and the caller does not want it.
    #[error("a run of this workflow type and id exists")]
    AlreadyExists {
        /// That run.
        execution_id: ExecutionId,
        /// Its state.
        status: Status,
    },
    /// The core refuses.
    #[error(transparent)]
    Reject(Reject),
    /// The store does not accept what the operation would write.
    #[error("the store refuses the operation's data: {0}")]
    Poisoned(String),
    /// No worker answered the query in time.
    #[error("no worker answered the query in time")]
    QueryTimeout,
    /// What is stored of the run cannot be read.
    #[error("the run cannot be read: {0}")]
    Corrupt(String),
}

impl Refusal {
    /// Whether a message that is answered so is done with: what its target refuses is an outcome, and delivering it again would change nothing and
    /// block those behind it.
    pub(crate) fn ends_delivery(&self) -> bool {
        match self {
            Self::Reject(_) | Self::NotFound => true,
            Self::NotOwner
            | Self::Unavailable(_)
            | Self::StoreAway
            | Self::Overloaded { .. }
            | Self::AlreadyExists { .. }
            | Self::Poisoned(_)
            | Self::QueryTimeout
            | Self::Corrupt(_) => false,
        }
    }
}
