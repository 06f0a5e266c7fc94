//! What follows from a state: the indexed view and the next deadline.

use super::State;
use crate::machine::activity::{Activity, ActivityDeadline, ActivityPhase};
use crate::machine::workflow_task::WorkflowTask;
use crate::projection::{Projection, Task, TaskKey};
use harvest_ids::{ActivityId, EventId, Timestamp};
use std::collections::BTreeMap;

/// Something that happens by the clock alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// The started workflow task times out, or its back-off is over.
    WorkflowTask,
    /// Something about an activity.
    Activity(ActivityId, ActivityDeadline),
    /// The timer started by this event fires.
    Timer(EventId),
    /// The run times out.
    Execution,
    /// The chain times out.
    Chain,
}

impl Deadline {
    /// The place among deadlines of the same instant: by event, the end of the chain and of the run last.
    pub(crate) fn rank(&self) -> EventId {
        match self {
            Self::WorkflowTask => EventId(0),
            Self::Activity(id, _) | Self::Timer(id) => *id,
            Self::Chain => EventId(u64::MAX - 1),
            Self::Execution => EventId(u64::MAX),
        }
    }
}

impl State {
    /// What the engine keeps indexed about the run.
    pub fn projection(&self) -> Projection {
        Projection {
            status: self.status(),
            closed_at: self.closed_at(),
            last_event: self.last_event,
            record_count: self.record_count,
            history_bytes: self.history_bytes,
            due_at: self.due_at(),
            tasks: self.tasks(),
            blocked: self.deciding.block.clone(),
        }
    }

    /// Every deadline of the run, in no particular order; none when it is closed.
    pub fn deadlines(&self) -> impl Iterator<Item = (Timestamp, Deadline)> {
        let started = self.started.as_deref().filter(|_| self.closed.is_none());
        let execution = started.and_then(|started| started.execution_timeout).map(|span| (self.started_at.plus(span), Deadline::Execution));
        let chain = started.and_then(|started| started.chain_deadline).map(|at| (at, Deadline::Chain));
        let task = started.and_then(|started| self.deciding.task.deadline(started.workflow_task_timeout)).map(|at| (at, Deadline::WorkflowTask));
        let activities = self.activities.iter().filter_map(|(id, activity)| activity.deadline().map(|(at, what)| (at, Deadline::Activity(*id, what))));
        let timers = self.timers.iter().map(|(id, timer)| (timer.deadline, Deadline::Timer(*id)));
        execution.into_iter().chain(chain).chain(task).chain(activities).chain(timers)
    }

    /// The run's earliest deadline of any kind.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.deadlines().map(|(at, _)| at).min()
    }

    /// One task of the run, if it is ready or with a worker.
    pub fn task(&self, key: TaskKey) -> Option<Task> {
        let started = self.started.as_deref().filter(|_| self.closed.is_none())?;
        match key {
            TaskKey::Workflow => {
                let (attempt, ready_at, dispatch) = match &self.deciding.task {
                    WorkflowTask::None | WorkflowTask::Backoff { .. } => return None,
                    WorkflowTask::Ready { since, attempt } => (*attempt, *since, None),
                    WorkflowTask::Started { since, attempt, dispatch, .. } => (*attempt, *since, Some(dispatch.clone())),
                };
                Some(Task { queue: started.task_queue.clone(), attempt, ready_at, started: dispatch })
            }
            TaskKey::Activity(id) => self.activities.get(&id).and_then(activity_task),
        }
    }

    fn tasks(&self) -> BTreeMap<TaskKey, Task> {
        let workflow = self.task(TaskKey::Workflow).map(|task| (TaskKey::Workflow, task));
        let activities = self.activities.iter().filter_map(|(id, activity)| Some((TaskKey::Activity(*id), activity_task(activity)?)));
        workflow.into_iter().chain(activities).collect()
    }
}

fn activity_task(activity: &Activity) -> Option<Task> {
    let (attempt, ready_at, dispatch) = match &activity.phase {
        ActivityPhase::Ready { since, attempt, .. } => (*attempt, *since, None),
        ActivityPhase::Running { since, attempt, dispatch, .. } => (*attempt, *since, Some(dispatch.clone())),
        ActivityPhase::Backoff { .. } => return None,
    };
    Some(Task { queue: activity.spec.task_queue.clone(), attempt, ready_at, started: dispatch })
}
