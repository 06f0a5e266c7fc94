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
    /// The run counts as late.
    Sla,
    /// The pause is over.
    Resume,
    /// The run times out.
    Execution,
    /// The chain times out.
    Chain,
}

impl Deadline {
    /// The place among deadlines of the same instant: by event, then lateness, the end of the chain and of the run last.
    pub(crate) fn rank(&self) -> EventId {
        match self {
            Self::WorkflowTask | Self::Resume => EventId(0),
            Self::Activity(id, _) | Self::Timer(id) => *id,
            Self::Sla => EventId(u64::MAX - 2),
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
            paused_at: self.pause.as_ref().map(|pause| pause.since),
            sla_deadline: self.sla_deadline(),
            sla_breached_at: self.sla_breached_at,
        }
    }

    /// Every deadline of the run, in no particular order; none when it is closed. While it is paused those of what workers have in their hands,
    /// and the end of the pause: all others stand still, or wait for it.
    pub fn deadlines(&self) -> impl Iterator<Item = (Timestamp, Deadline)> {
        let started = self.started.as_deref().filter(|_| self.closed.is_none());
        let (resume, going) = (started.and(self.pause.as_ref()).map(|pause| (pause.until, Deadline::Resume)), self.pause.is_none());
        let moving = started.filter(|_| going);
        let execution = moving.and(self.execution_deadline()).map(|at| (at, Deadline::Execution));
        let sla = moving.and(self.sla_deadline()).filter(|_| self.sla_breached_at.is_none()).map(|at| (at, Deadline::Sla));
        let chain = moving.and_then(|started| started.chain_deadline).map(|at| (at, Deadline::Chain));
        let task_counts = going || matches!(self.deciding.task, WorkflowTask::Started { .. });
        let task = started.filter(|_| task_counts).and_then(|started| self.deciding.task.deadline(started.workflow_task_timeout));
        let task = task.map(|at| (at, Deadline::WorkflowTask));
        let activities = self.activities.iter().filter_map(move |(id, activity)| {
            let deadline = if going { activity.deadline() } else { activity.attempt_deadline().filter(|_| activity.is_running()) };
            deadline.map(|(at, what)| (at, Deadline::Activity(*id, what)))
        });
        let timers = self.timers.iter().filter(move |_| going).map(|(id, timer)| (timer.deadline, Deadline::Timer(*id)));
        execution.into_iter().chain(sla).chain(chain).chain(resume).chain(task).chain(activities).chain(timers)
    }

    /// The run's earliest deadline of any kind.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.deadlines().map(|(at, _)| at).min()
    }

    /// One task of the run, if it is with a worker, or ready and the run not paused.
    pub fn task(&self, key: TaskKey) -> Option<Task> {
        self.any_task(key).filter(|task| self.pause.is_none() || task.started.is_some())
    }

    fn any_task(&self, key: TaskKey) -> Option<Task> {
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
        let activities = self.activities.keys().map(|id| TaskKey::Activity(*id)).filter_map(|key| Some((key, self.task(key)?)));
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
