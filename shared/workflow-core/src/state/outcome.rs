//! How a run ended and what it left for those who wait.

use crate::event::WorkflowTimeout;
use crate::message::ChildOutcome;
use crate::payload::{Failure, Payload};
use crate::state::Status;
use harvest_ids::ExecutionId;

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// With a result.
    Completed {
        /// The result.
        output: Payload,
    },
    /// With a failure.
    Failed {
        /// The failure.
        failure: Failure,
    },
    /// By cancelling itself.
    Cancelled {
        /// Why, for people.
        reason: String,
    },
    /// From outside.
    Terminated {
        /// Why, for people.
        reason: String,
    },
    /// By running out of time.
    TimedOut {
        /// Which limit.
        timeout: WorkflowTimeout,
    },
    /// By starting its successor.
    ContinuedAsNew {
        /// The successor.
        new_execution_id: ExecutionId,
    },
}

impl Outcome {
    /// The status that goes with it.
    pub fn status(&self) -> Status {
        match self {
            Self::Completed { .. } => Status::Completed,
            Self::Failed { .. } => Status::Failed,
            Self::Cancelled { .. } => Status::Cancelled,
            Self::Terminated { .. } => Status::Terminated,
            Self::TimedOut { .. } => Status::TimedOut,
            Self::ContinuedAsNew { .. } => Status::ContinuedAsNew,
        }
    }

    /// The result of a completed run.
    pub fn output(&self) -> Option<&Payload> {
        match self {
            Self::Completed { output } => Some(output),
            Self::Failed { .. } | Self::Cancelled { .. } | Self::Terminated { .. } | Self::TimedOut { .. } | Self::ContinuedAsNew { .. } => None,
        }
    }

    /// The failure of a failed run.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed { failure } => Some(failure),
            Self::Completed { .. } | Self::Cancelled { .. } | Self::Terminated { .. } | Self::TimedOut { .. } | Self::ContinuedAsNew { .. } => None,
        }
    }

    /// Why a cancelled or terminated run ended.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Cancelled { reason } | Self::Terminated { reason } => Some(reason),
            Self::Completed { .. } | Self::Failed { .. } | Self::TimedOut { .. } | Self::ContinuedAsNew { .. } => None,
        }
    }

    /// The successor.
    pub fn continued_as(&self) -> Option<ExecutionId> {
        match self {
            Self::ContinuedAsNew { new_execution_id } => Some(*new_execution_id),
            Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled { .. } | Self::Terminated { .. } | Self::TimedOut { .. } => None,
        }
    }

    /// What a parent that awaits the run is told; nothing when a successor goes on.
    pub fn for_parent(&self) -> Option<ChildOutcome> {
        Some(match self {
            Self::Completed { output } => ChildOutcome::Completed(output.clone()),
            Self::Failed { failure } => ChildOutcome::Failed(failure.clone()),
            Self::Cancelled { reason } => ChildOutcome::Failed(Failure::engine("ChildCancelled", reason.as_str())),
            Self::Terminated { reason } => ChildOutcome::Failed(Failure::engine("ChildTerminated", reason.as_str())),
            Self::TimedOut { timeout: WorkflowTimeout::Execution } => {
                ChildOutcome::Failed(Failure::engine("ChildTimedOut", "the child's execution timeout passed"))
            }
            Self::TimedOut { timeout: WorkflowTimeout::Chain } => ChildOutcome::Failed(Failure::engine("ChildTimedOut", "the time of the child's chain is up")),
            Self::ContinuedAsNew { .. } => return None,
        })
    }
}
