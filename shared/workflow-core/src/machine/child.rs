//! Child runs, as their parent knows them.

use harvest_ids::ExecutionId;

/// A child of this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    /// Its outcome is awaited and not here yet.
    Awaited {
        /// The child's first run.
        execution_id: ExecutionId,
        /// A cancel message is on its way.
        cancel_requested: bool,
    },
    /// It lives on its own: this run never hears of it again.
    Detached {
        /// The child's first run.
        execution_id: ExecutionId,
        /// A cancel message is on its way.
        cancel_requested: bool,
    },
    /// Its outcome is an event.
    Ended,
}

impl Child {
    /// Where a cancel message has to go, when one makes sense and none was sent.
    pub fn cancel_target(&self) -> Option<ExecutionId> {
        match self {
            Self::Awaited { execution_id, cancel_requested: false } | Self::Detached { execution_id, cancel_requested: false } => Some(*execution_id),
            Self::Awaited { cancel_requested: true, .. } | Self::Detached { cancel_requested: true, .. } | Self::Ended => None,
        }
    }

    /// Whether its outcome is awaited and not here yet.
    pub fn is_awaited(&self) -> bool {
        match self {
            Self::Awaited { .. } => true,
            Self::Detached { .. } | Self::Ended => false,
        }
    }

    pub(crate) fn request_cancel(&mut self) {
        match self {
            Self::Awaited { cancel_requested, .. } | Self::Detached { cancel_requested, .. } => *cancel_requested = true,
            Self::Ended => {}
        }
    }
}
