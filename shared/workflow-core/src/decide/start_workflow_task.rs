//! A worker takes the workflow task.

use super::Emitter;
use crate::decision::{Reject, Reply};
use crate::machine::workflow_task::WorkflowTask;
use crate::record::{Control, Dispatch};

pub(super) fn start_workflow_task(emitter: &mut Emitter<'_>, dispatch: &Dispatch) -> Result<Reply, Reject> {
    if emitter.state.pause().is_some() {
        return Err(Reject::NotPending);
    }
    let attempt = match emitter.state.workflow_task() {
        WorkflowTask::Ready { attempt, .. } => *attempt,
        WorkflowTask::None | WorkflowTask::Started { .. } | WorkflowTask::Backoff { .. } => return Err(Reject::NotPending),
    };
    let timeout = emitter.state.started().ok_or(Reject::NotFound)?.workflow_task_timeout;
    let last_event = emitter.state.last_event_id();
    let previous_decision = emitter.state.decided_to();
    emitter.control(Control::WorkflowTaskStarted { at: emitter.at, attempt, dispatch: dispatch.clone() });
    Ok(Reply::WorkflowTask { attempt, last_event, previous_decision, timeout })
}
