//! The first workflow task of a run in the answer to its start, for a worker in the caller's process.
//!
//! It is taken when the start has committed, in memory, like any task that is taken: its record rides along with the worker's decision, so
//! that start and decision are two commits and nobody else hears of the task. Should this owner die before its answer is heard, the next
//! one knows the task as waiting and offers it at once. A worker that dies with the task loses it by the task's timeout.

use super::actor::Actor;
use super::operation::{Answer, StartOperation, TakenWorkflowTask};
use harvest_ids::{Attempt, EventId, ExecutionId, WorkerId};
use harvest_persistence::batch::TaskId;
use harvest_runtime::metrics;
use harvest_workflow_core::input::TaskToken;
use harvest_workflow_core::machine::workflow_task::WorkflowTask;
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::record::Dispatch;

/// Where the first workflow task of a run is.
enum FirstTask {
    Waiting,
    /// The worker that asks has it already: it did not hear the answer.
    Its {
        dispatch: Dispatch,
        seen: EventId,
    },
}

impl Actor {
    /// Adds the first workflow task to the answer of a start that has made its run, now or when the same request came before.
    pub(crate) fn give_first_task(&mut self, start: &StartOperation, answer: &mut Answer) {
        let (Some(worker_id), Answer::Started { execution_id, fresh: true, task, .. }) = (&start.eager_worker, answer) else { return };
        *task = self.first_task_for(*execution_id, worker_id).map(Box::new);
    }

    fn first_task_for(&mut self, id: ExecutionId, worker_id: &WorkerId) -> Option<TakenWorkflowTask> {
        match self.first_task(id, worker_id)? {
            FirstTask::Its { dispatch, seen } => {
                let run = self.cache.peek(id)?;
                let token = TaskToken { execution_id: id, activity_id: None, attempt: Attempt::FIRST, dispatch };
                Some(run.taken_workflow_task(token, EventId(1), seen, run.state.started()?.workflow_task_timeout))
            }
            FirstTask::Waiting => {
                let Ok(Answer::WorkflowTask(task)) = self.take_workflow_task(id, worker_id, None) else { return None };
                self.ready.taken(TaskId { execution_id: id, key: TaskKey::Workflow });
                self.note_volatile_deadline(id);
                metrics::WORKFLOW_EAGER_STARTED.add(1, [task.run.key.workflow_type.as_str(), task.run.task_queue.as_str()]);
                Some(*task)
            }
        }
    }

    /// The first workflow task, while nobody has decided it and nobody else has it.
    fn first_task(&self, id: ExecutionId, worker_id: &WorkerId) -> Option<FirstTask> {
        let run = self.cache.peek(id)?;
        // A task shows how far its run has come. News that is not durable yet would keep the answer of the start waiting: it comes by a stream then.
        let is_durable = run.last_batch <= self.committed && !self.open.touched.contains(&id);
        let is_in_memory = run.events(EventId(1), EventId(1)).is_some();
        if !is_durable || !is_in_memory || run.state.decided_to() > EventId(0) {
            return None;
        }
        match run.state.workflow_task() {
            WorkflowTask::Ready { attempt: Attempt::FIRST, .. } => Some(FirstTask::Waiting),
            WorkflowTask::Started { attempt: Attempt::FIRST, dispatch, seen, .. } if dispatch.worker_id == *worker_id => {
                Some(FirstTask::Its { dispatch: dispatch.clone(), seen: *seen })
            }
            WorkflowTask::Ready { .. } | WorkflowTask::Started { .. } | WorkflowTask::Backoff { .. } | WorkflowTask::None => None,
        }
    }
}
