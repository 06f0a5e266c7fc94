//! Orders to pause a run and to let it go on, and the state that shows it.

use crate::error::WireError;
use crate::field::{optional_name, optional_span, text};
use crate::start::{Limits, WorkflowRef};
use harvest_ids::{DurationMs, RequestId};
use harvest_proto::v1;
use harvest_workflow_core::state::Status;

/// The state of an open run that is paused, on every wire. In the store it is a running one.
pub const PAUSED: &str = "PAUSED";

/// The state of a run as callers see it.
pub fn state_word(status: Status, is_paused: bool) -> &'static str {
    if is_paused && status == Status::Running { PAUSED } else { status.as_str() }
}

/// An order to pause a run.
#[derive(Debug, Clone, PartialEq)]
pub struct PauseWorkflow {
    /// Which run.
    pub workflow: WorkflowRef,
    /// Why, for people.
    pub reason: String,
    /// The caller's id for the call.
    pub request_id: Option<RequestId>,
    /// When it goes on by itself.
    pub longest: Option<DurationMs>,
}

impl PauseWorkflow {
    /// Checks an order to pause.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_proto(request: v1::PauseWorkflowRequest, limits: &Limits) -> Result<Self, WireError> {
        Ok(Self {
            workflow: WorkflowRef::from_proto(request.workflow)?,
            reason: text("reason", request.reason, limits.max_reason_bytes)?,
            request_id: optional_name("request_id", request.request_id)?,
            longest: optional_span("longest_ms", request.longest_ms)?,
        })
    }
}

/// An order to let a run go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeWorkflow {
    /// Which run.
    pub workflow: WorkflowRef,
    /// The caller's id for the call.
    pub request_id: Option<RequestId>,
}

impl ResumeWorkflow {
    /// Checks an order to let a run go on.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_proto(request: v1::ResumeWorkflowRequest) -> Result<Self, WireError> {
        Ok(Self { workflow: WorkflowRef::from_proto(request.workflow)?, request_id: optional_name("request_id", request.request_id)? })
    }
}
