//! The first workflow task in the answer to a start: what `docs/reference/workers.md` says of it.

use super::engine::Engine;
use harvest_ids::*;
use harvest_proto::v1;
use harvest_workflow_core::input::TaskToken;
use harvest_workflow_core::machine::workflow_task::WorkflowTask;

impl Engine {
    /// The first workflow task of a run for a worker whose stream is here: the one that it has, or the one that waits.
    pub fn first_task(&mut self, id: ExecutionId, worker_id: &str) -> Option<v1::WorkflowTask> {
        self.counts.eager_starts_asked += u32::from(!worker_id.is_empty());
        if !self.sessions.iter().any(|session| session.id == worker_id) || self.runs[&id].state.decided_to() > EventId(0) {
            return None;
        }
        let worker = WorkerId::new(worker_id).unwrap();
        match self.runs[&id].state.workflow_task().clone() {
            WorkflowTask::Started { attempt: Attempt::FIRST, dispatch, seen, .. } if dispatch.worker_id == worker => {
                self.counts.repeated += 1;
                let timeout = self.runs[&id].state.started()?.workflow_task_timeout;
                let token = TaskToken { execution_id: id, activity_id: None, attempt: Attempt::FIRST, dispatch };
                Some(self.taken_workflow_task(token, EventId(1), seen, timeout))
            }
            WorkflowTask::Ready { attempt: Attempt::FIRST, .. } => {
                let dispatch = self.new_dispatch(&worker);
                self.counts.eager_starts_given += 1;
                self.runs.get_mut(&id)?.last_worker = worker_id.to_owned();
                self.workflow_task(id, dispatch, false)
            }
            _ => None,
        }
    }
}
