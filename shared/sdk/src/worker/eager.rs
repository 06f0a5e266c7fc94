//! Activities that come with the reply to the decision that scheduled them, without matching and without a message of their own.

use crate::worker::WorkerShared;
use crate::worker::activity_tasks;
use crate::worker::credits::{Place, TaskKind};
use crate::workflow::run::ServerClock;
use harvest_ids::Timestamp;
use harvest_proto::v1::{self, ActivityTask};
use harvest_wire::event;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::Event;
use std::sync::Arc;
use tokio::time::Instant;

/// Most activities that one decision asks for.
const MOST: usize = 100;

/// What a decision asks for, with a place for each.
#[derive(Default)]
pub(crate) struct Asked {
    /// Which of the decision's commands.
    pub(crate) commands: Vec<u32>,
    places: Vec<Place>,
}

/// Reserves places for activities among `commands` whose code is here and whose queue this worker serves. What is not used goes back when it is
/// dropped.
pub(crate) fn ask(worker: &WorkerShared, commands: &[Command], run_queue: &str) -> Asked {
    let mut asked = Asked::default();
    if !worker.config.eager_activities || worker.is_draining() {
        return asked;
    }
    for (index, command) in (0_u32..).zip(commands) {
        let Command::ScheduleActivity(activity) = command else { continue };
        if asked.commands.len() == MOST {
            break;
        }
        if !worker.registry.activities.contains_key(activity.activity_type.as_str()) {
            continue;
        }
        let queue = activity.options.task_queue.as_ref().or(activity.attribute.task_queue.as_ref()).map_or(run_queue, |queue| queue.as_str());
        if let Some(place) = worker.credits.reserve(queue, TaskKind::Activity) {
            asked.commands.push(index);
            asked.places.push(place);
        }
    }
    asked
}

/// Runs what the server gave, in the places that were reserved for it.
pub(crate) fn start(worker: &Arc<WorkerShared>, worker_id: &str, mut asked: Asked, tasks: Vec<ActivityTask>) {
    for task in tasks {
        let place = asked.places.iter().position(|place| place.queue() == task.task_queue).map(|index| asked.places.swap_remove(index));
        activity_tasks::spawn(worker, worker_id, task, place);
    }
}

/// The events that a decision led to, as the reply has them, with the server's clock. `None` when it has none, or none that can be read.
pub(crate) fn news(reply: &mut v1::CompleteWorkflowTaskResponse, heard: Instant) -> Option<(Vec<Event>, ServerClock)> {
    if reply.new_events.is_empty() {
        return None;
    }
    match event::list(std::mem::take(&mut reply.new_events)) {
        Ok(events) => Some((events, ServerClock { showed: Timestamp::from_millis(reply.decided_at_ms), heard })),
        Err(error) => {
            tracing::debug!(%error, "the events of a decision cannot be read: the next task brings them");
            None
        }
    }
}
