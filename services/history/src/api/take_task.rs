//! Matching found a worker for an offered task.

use super::get_history::read;
use super::{Api, execution_id, unexpected};
use crate::reply::workflow_info;
use crate::shard::operation::{Answer, Operation, TakenActivityTask, TakenQuery, TakenWorkflowTask};
use harvest_ids::{EventId, ShardId, WorkerId};
use harvest_proto::internal::v1::take_task_reply::Task;
use harvest_proto::internal::v1::{Gone, TakeTaskCall, TakeTaskReply};
use harvest_proto::v1;
use harvest_rpc::Error;
use harvest_wire::{failure, payload, token};

/// Most events that travel with a workflow task; the worker reads the rest by pages.
const MAX_EVENTS: usize = 1_000;

pub(super) async fn take_task(api: &Api, call: TakeTaskCall) -> Result<TakeTaskReply, Error> {
    let worker_id = WorkerId::new(&call.worker_id).map_err(|error| Error::invalid("worker_id", error))?;
    let execution_id = execution_id(&call.execution_id)?;
    let operation = if call.query_token.is_empty() {
        let activity_id = (call.activity_id > 0).then_some(EventId(call.activity_id));
        Operation::TakeTask { execution_id, activity_id, worker_id }
    } else {
        let number = <[u8; 8]>::try_from(call.query_token.as_ref()).map_err(|_| Error::invalid("query_token", "query_token must be 8 bytes"))?;
        Operation::TakeQuery { sequence: u64::from_be_bytes(number), execution_id, worker_id }
    };
    let task = match api.call(call.shard_id, operation).await? {
        Answer::WorkflowTask(task) => Task::WorkflowTask(workflow_task(api, ShardId(call.shard_id), *task).await?),
        Answer::ActivityTask(task) => Task::ActivityTask(activity_task(*task)),
        Answer::QueryTask(task) => Task::QueryTask(query_task(*task)),
        Answer::Gone => Task::Gone(Gone {}),
        other => return Err(unexpected(&other)),
    };
    Ok(TakeTaskReply { task: Some(task) })
}

async fn workflow_task(api: &Api, shard_id: ShardId, task: TakenWorkflowTask) -> Result<v1::WorkflowTask, Error> {
    let events = match task.events {
        Some(events) if events.len() <= MAX_EVENTS => events,
        Some(_) | None => read(api, shard_id, task.run.execution_id, task.first_event, task.last_event, MAX_EVENTS).await?,
    };
    Ok(workflow_task_with(TakenWorkflowTask { events: Some(events), ..task }))
}

/// A workflow task with the events that it has in memory, as far as they fit.
pub(super) fn workflow_task_with(task: TakenWorkflowTask) -> v1::WorkflowTask {
    v1::WorkflowTask {
        task_token: token::encode(&task.token),
        workflow: Some(workflow_info(&task.run)),
        events: task.events.iter().flatten().take(MAX_EVENTS).map(harvest_wire::event::to_proto).collect(),
        first_event_id: task.first_event.0,
        last_event_id: task.last_event.0,
        attempt: task.token.attempt.0,
        timeout_ms: task.timeout.as_millis(),
        started_at_ms: task.started_at.as_millis(),
    }
}

pub(super) fn activity_task(task: TakenActivityTask) -> v1::ActivityTask {
    v1::ActivityTask {
        task_token: token::encode(&task.token),
        workflow: Some(workflow_info(&task.run)),
        activity_id: task.token.activity_id.map_or(0, |id| id.0),
        activity_type: task.spec.activity_type.to_string(),
        input: Some(payload::to_proto(&task.spec.input)),
        attempt: task.token.attempt.0,
        max_attempts: task.spec.retry.max_attempts,
        heartbeat_details: task.heartbeat_details.as_ref().map(payload::to_proto),
        start_to_close_ms: task.spec.start_to_close.map_or(0, |span| span.as_millis()),
        heartbeat_timeout_ms: task.spec.heartbeat_timeout.map_or(0, |span| span.as_millis()),
        task_queue: task.spec.task_queue.to_string(),
        previous_failure: task.previous_failure.as_ref().map(failure::to_proto),
        started_at_ms: task.started_at.as_millis(),
        // 0 would say that there is no limit.
        schedule_to_close_left_ms: task.closes_at.map_or(0, |at| u64::try_from(at.since(task.started_at).as_millis()).unwrap_or(u64::MAX).max(1)),
    }
}

fn query_task(task: TakenQuery) -> v1::QueryTask {
    v1::QueryTask {
        query_token: token::encode(&task.token),
        workflow: Some(workflow_info(&task.run)),
        query_name: task.name.to_string(),
        args: Some(payload::to_proto(&task.args)),
        last_event_id: task.last_event.0,
    }
}
