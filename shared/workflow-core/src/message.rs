//! Messages between runs, which may live on different shards.
//!
//! A message is an outbox row of the batch that decided it, delivered at least once and in order per (source, target), removed when
//! the target has committed it. Every kind has a natural key that the target's state remembers, so a repetition changes nothing.

use crate::event::{ChildWorkflow, Parent};
use crate::payload::{Failure, Payload};
use harvest_ids::{DurationMs, EventId, ExecutionId, Namespace};

/// One message to another run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The run that sent it.
    pub source: ExecutionId,
    /// The run that it is for. For [`MessageBody::StartChild`] the run that it creates.
    pub target: ExecutionId,
    /// What it says.
    pub body: MessageBody,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageBody {
    /// Parent to child: be started. Natural key: the target's execution id. A refusal travels back as [`MessageBody::ChildStartRefused`].
    StartChild {
        /// The parent's tenant, and so the child's.
        namespace: Namespace,
        /// The child as it was asked for.
        child: Box<ChildWorkflow>,
        /// Who asks.
        parent: Parent,
        /// How long one workflow task of the child may stay with a worker.
        workflow_task_timeout: DurationMs,
    },
    /// Child to parent: you may not have me (another run holds the id, ...). Natural key: `initiated`.
    ChildStartRefused {
        /// The parent's event that asked for the child.
        initiated: EventId,
        /// What went wrong.
        failure: Failure,
    },
    /// Child to parent: I ended. Sent by the last run of the child's chain. Natural key: `initiated`.
    ChildClosed {
        /// The parent's event that asked for the child.
        initiated: EventId,
        /// How it ended.
        outcome: ChildOutcome,
    },
    /// Parent to child: cancel yourself. Follows the child's chain. Natural key: asking twice is asking once.
    CancelChild {
        /// Why, for people.
        reason: String,
    },
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildOutcome {
    /// With a result.
    Completed(Payload),
    /// Otherwise; the failure's type says how.
    Failed(Failure),
}
