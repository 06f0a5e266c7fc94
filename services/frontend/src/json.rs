//! Answers as JSON, with the names and shapes of the HTTP API.

use harvest_ids::Timestamp;
use harvest_proto::v1;
use harvest_rpc::Error;
use harvest_wire::json::{EventJson, PayloadJson};
use serde::Serialize;
use serde_json::value::RawValue;

/// An instant; `None` for 0.
pub fn instant(millis: i64) -> Option<String> {
    (millis != 0).then(|| Timestamp::from_millis(millis).rfc3339())
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A payload as plain JSON.
pub fn payload(payload: Option<v1::Payload>) -> Option<Box<RawValue>> {
    payload.map(|payload| PayloadJson(payload).to_raw())
}

/// A failure.
#[derive(Serialize)]
pub struct FailureJson {
    message: String,
    error_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Box<RawValue>>,
    non_retryable: bool,
}

impl From<v1::Failure> for FailureJson {
    fn from(it: v1::Failure) -> Self {
        Self { message: it.message, error_type: it.error_type, details: payload(it.details), non_retryable: it.non_retryable }
    }
}

/// A started run.
#[derive(Serialize)]
pub struct StartedJson {
    execution_id: String,
    workflow_name: String,
    workflow_id: String,
    state: String,
    started_fresh: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl From<v1::StartWorkflowResponse> for StartedJson {
    fn from(it: v1::StartWorkflowResponse) -> Self {
        Self {
            execution_id: it.execution_id,
            workflow_name: it.workflow_type,
            workflow_id: it.workflow_id,
            state: it.state,
            started_fresh: it.started_fresh,
            warnings: it.warnings,
        }
    }
}

/// A run.
#[derive(Serialize)]
pub struct WorkflowJson {
    /// The run.
    pub execution_id: String,
    namespace: String,
    workflow_name: String,
    workflow_id: String,
    state: String,
    queue: String,
    started_at: Option<String>,
    completed_at: Option<String>,
    history_events: u64,
    first_execution_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    continued_as: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_execution_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sla_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sla_deadline_at: Option<String>,
    sla_breached: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sla_breached_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nd_block: Option<BlockJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending_activities: Vec<PendingJson>,
}

#[derive(Serialize)]
struct BlockJson {
    nd_blocked_at: Option<String>,
    nd_block_reason: String,
    nd_block_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<u64>,
}

#[derive(Serialize)]
struct PendingJson {
    activity_id: u64,
    activity_type: String,
    attempt: u32,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<FailureJson>,
}

impl From<v1::WorkflowInfo> for WorkflowJson {
    fn from(it: v1::WorkflowInfo) -> Self {
        let pending = |it: v1::PendingActivity| PendingJson {
            activity_id: it.activity_id,
            activity_type: it.activity_type,
            attempt: it.attempt,
            state: it.state,
            worker_id: some(it.worker_id),
            retry_at: instant(it.retry_at_ms),
            last_failure: it.last_failure.map(FailureJson::from),
        };
        Self {
            execution_id: it.execution_id,
            namespace: it.namespace,
            workflow_name: it.workflow_type,
            workflow_id: it.workflow_id,
            state: it.state,
            queue: it.task_queue,
            started_at: instant(it.started_at_ms),
            completed_at: instant(it.closed_at_ms),
            history_events: it.history_events,
            first_execution_id: it.first_execution_id,
            continued_as: some(it.continued_as),
            parent_execution_id: some(it.parent_execution_id),
            execution_timeout_ms: Some(it.execution_timeout_ms).filter(|millis| *millis > 0),
            deadline_at: instant(it.deadline_at_ms),
            sla_ms: Some(it.sla_ms).filter(|millis| *millis > 0),
            sla_deadline_at: instant(it.sla_deadline_at_ms),
            sla_breached: it.sla_breached_at_ms != 0,
            sla_breached_at: instant(it.sla_breached_at_ms),
            paused_at: instant(it.paused_at_ms),
            paused_until: instant(it.paused_until_ms),
            pause_reason: some(it.pause_reason),
            nd_block: it.blocked.map(|block| BlockJson {
                nd_blocked_at: instant(block.since_ms),
                nd_block_reason: block.message,
                nd_block_count: block.count,
                expected: some(block.expected),
                actual: some(block.actual),
                event_id: Some(block.event_id).filter(|id| *id > 0),
            }),
            pending_activities: it.pending_activities.into_iter().map(pending).collect(),
        }
    }
}

/// A page of runs.
#[derive(Serialize)]
pub struct ListJson {
    workflows: Vec<WorkflowJson>,
    next_cursor: Option<String>,
}

impl From<v1::ListWorkflowsResponse> for ListJson {
    fn from(it: v1::ListWorkflowsResponse) -> Self {
        Self { workflows: it.workflows.into_iter().map(WorkflowJson::from).collect(), next_cursor: some(it.next_page_token) }
    }
}

/// A page of a history.
#[derive(Serialize)]
pub struct HistoryJson {
    /// The run.
    pub execution_id: String,
    events: Vec<EventJson>,
    next_event_id: Option<u64>,
}

impl TryFrom<v1::GetHistoryResponse> for HistoryJson {
    type Error = Error;

    fn try_from(it: v1::GetHistoryResponse) -> Result<Self, Error> {
        let event = |event: v1::Event| {
            let id = event.event_id;
            EventJson::from_proto(event).ok_or_else(|| Error::internal(format!("event {id} is of a kind newer than this frontend")))
        };
        let events = it.events.into_iter().map(event).collect::<Result<_, _>>()?;
        Ok(Self { execution_id: it.execution_id, events, next_event_id: Some(it.next_event_id).filter(|id| *id > 0) })
    }
}

/// An outcome.
#[derive(Serialize)]
pub struct ResultJson {
    execution_id: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FailureJson>,
    completed_at: Option<String>,
}

impl From<v1::GetResultResponse> for ResultJson {
    fn from(it: v1::GetResultResponse) -> Self {
        Self {
            execution_id: it.execution_id,
            state: it.state,
            output: payload(it.output),
            error: it.failure.map(FailureJson::from),
            completed_at: instant(it.closed_at_ms),
        }
    }
}

/// A worker session.
#[derive(Serialize)]
pub struct WorkerJson {
    worker_id: String,
    namespace: String,
    identity: String,
    build_id: String,
    sdk: String,
    queues: Vec<String>,
    workflow_names: Vec<String>,
    activity_names: Vec<String>,
    last_seen: Option<String>,
}

impl From<v1::WorkerInfo> for WorkerJson {
    fn from(it: v1::WorkerInfo) -> Self {
        Self {
            worker_id: it.worker_id,
            namespace: it.namespace,
            identity: it.identity,
            build_id: it.build_id,
            sdk: it.sdk,
            queues: it.task_queues,
            workflow_names: it.workflow_types,
            activity_names: it.activity_types,
            last_seen: instant(it.last_seen_ms),
        }
    }
}

/// A shard.
#[derive(Serialize)]
pub struct ShardJson {
    shard_id: u32,
    slots: u32,
    owner: Option<String>,
    address: Option<String>,
    epoch: u64,
    lease_remaining_ms: i64,
}

impl From<v1::ShardInfo> for ShardJson {
    fn from(it: v1::ShardInfo) -> Self {
        Self {
            shard_id: it.shard_id,
            slots: it.slots,
            owner: some(it.owner),
            address: some(it.address),
            epoch: it.epoch,
            lease_remaining_ms: it.lease_remaining_ms,
        }
    }
}

/// The fleet limits and their version.
#[derive(Serialize)]
pub struct LimitsJson {
    limits: LimitValuesJson,
    version: VersionJson,
}

#[derive(Serialize)]
struct LimitValuesJson {
    max_workflow_execution_timeout_secs: Option<serde_json::Number>,
    max_workflow_chain_timeout_secs: Option<serde_json::Number>,
}

#[derive(Serialize)]
struct VersionJson {
    generation: u64,
    number: u64,
}

impl From<v1::GetFleetLimitsResponse> for LimitsJson {
    fn from(it: v1::GetFleetLimitsResponse) -> Self {
        let limits = it.limits.unwrap_or_default();
        let version = it.version.unwrap_or_default();
        Self {
            limits: LimitValuesJson {
                max_workflow_execution_timeout_secs: limits.max_workflow_execution_timeout_ms.and_then(seconds),
                max_workflow_chain_timeout_secs: limits.max_workflow_chain_timeout_ms.and_then(seconds),
            },
            version: VersionJson { generation: version.generation, number: version.number },
        }
    }
}

/// Changed fleet limits and how far they have come.
#[derive(Serialize)]
pub struct ChangedLimitsJson {
    #[serde(flatten)]
    limits: LimitsJson,
    acknowledged: u32,
    pending: Vec<u32>,
}

impl From<v1::PatchFleetLimitsResponse> for ChangedLimitsJson {
    fn from(it: v1::PatchFleetLimitsResponse) -> Self {
        let limits = v1::GetFleetLimitsResponse { limits: it.limits, version: it.version };
        Self { limits: limits.into(), acknowledged: it.acknowledged, pending: it.pending }
    }
}

/// Milliseconds as seconds: whole where they are.
fn seconds(millis: u64) -> Option<serde_json::Number> {
    if millis.is_multiple_of(1_000) {
        Some((millis / 1_000).into())
    } else {
        serde_json::Number::from_f64(std::time::Duration::from_millis(millis).as_secs_f64())
    }
}
