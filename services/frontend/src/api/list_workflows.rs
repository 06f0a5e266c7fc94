//! Runs are listed, newest first.

use crate::edge::Edge;
use crate::refuse::malformed;
use harvest_persistence::batch::RunRow;
use harvest_persistence::error::StoreError;
use harvest_persistence::store::RunFilter;
use harvest_proto::v1::{ListWorkflowsRequest, ListWorkflowsResponse, NonDeterminismBlock, WorkflowInfo};
use harvest_rpc::{Error, Reason};
use harvest_wire::pause::state_word;
use harvest_wire::start::{ListWorkflows, encode_page_token};
use tokio::time::Instant;

pub(crate) async fn list_workflows(edge: &Edge, request: ListWorkflowsRequest, deadline: Instant) -> Result<ListWorkflowsResponse, Error> {
    let list = ListWorkflows::from_proto(request).map_err(malformed)?;
    let page = usize::try_from(list.page_size).expect("at most 200");
    let filter = RunFilter {
        namespace: list.namespace,
        status: list.status,
        paused: list.paused,
        sla_breached: list.sla_breached,
        workflow_type: list.workflow_type,
        workflow_id: list.workflow_id,
        after: list.after,
        limit: list.page_size + 1, // one more tells whether there is a next page
    };
    let runs = tokio::time::timeout_at(deadline, edge.runs.list(&filter)).await;
    let mut runs = runs.map_err(|_| Error::new(Reason::DeadlineExceeded, "the list was not read in time"))?.map_err(|error| match error {
        StoreError::Unavailable(message) => Error::unavailable(format!("the store is unavailable: {message}")),
        StoreError::Corrupt(message) => Error::new(Reason::DataLoss, message),
        StoreError::Refused(message) => Error::internal(message),
    })?;
    let more = runs.len() > page;
    runs.truncate(page);
    let next_page_token = match runs.last() {
        Some(last) if more => encode_page_token(last.started_at, last.execution_id),
        _ => String::new(),
    };
    Ok(ListWorkflowsResponse { workflows: runs.into_iter().map(info).collect(), next_page_token })
}

fn info(row: RunRow) -> WorkflowInfo {
    let it = row.mutable;
    WorkflowInfo {
        namespace: row.namespace.to_string(),
        workflow_type: row.workflow_type.to_string(),
        workflow_id: row.workflow_id.to_string(),
        execution_id: row.execution_id.to_string(),
        first_execution_id: row.first_execution_id.to_string(),
        state: state_word(it.status, it.paused_at.is_some()).to_owned(),
        task_queue: row.task_queue.to_string(),
        started_at_ms: row.started_at.as_millis(),
        closed_at_ms: it.closed_at.map_or(0, |at| at.as_millis()),
        history_events: it.last_event.0,
        continued_as: it.continued_as.map(|id| id.to_string()).unwrap_or_default(),
        parent_execution_id: row.parent_execution_id.map(|id| id.to_string()).unwrap_or_default(),
        blocked: it.blocked_at.map(|since| NonDeterminismBlock {
            since_ms: since.as_millis(),
            message: it.blocked_reason.unwrap_or_default(),
            ..NonDeterminismBlock::default()
        }),
        pending_activities: Vec::new(),
        execution_timeout_ms: row.execution_timeout_ms.unwrap_or(0),
        sla_ms: row.sla_ms.unwrap_or(0),
        sla_deadline_at_ms: it.sla_deadline_at.map_or(0, |at| at.as_millis()),
        sla_breached_at_ms: it.sla_breached_at.map_or(0, |at| at.as_millis()),
        paused_at_ms: it.paused_at.map_or(0, |at| at.as_millis()),
        deadline_at_ms: 0,
        paused_until_ms: 0,
        pause_reason: String::new(),
    }
}
