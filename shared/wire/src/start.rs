//! Validated calls of clients: whatever leaves here is well-formed.

use crate::error::WireError;
use crate::field::{execution_id, name, name_or_default, optional_name, optional_span, required, text, unknown_word};
use crate::pause::PAUSED;
use crate::payload;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use harvest_ids::{
    DurationMs, EventId, ExecutionId, Namespace, QueryName, RequestId, SignalName, Slot, TaskQueue, Timestamp, WorkerId, WorkflowId, WorkflowType,
};
use harvest_proto::v1;
use harvest_workflow_core::payload::Payload;
use harvest_workflow_core::state::Status;
use std::time::Duration;

/// Sizes that client calls may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a start's input and of a query's arguments.
    pub max_payload_bytes: usize,
    /// Most bytes of a signal's payload.
    pub max_signal_bytes: usize,
    /// Most bytes of a reason.
    pub max_reason_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_payload_bytes: 2 * 1024 * 1024, max_signal_bytes: 256 * 1024, max_reason_bytes: 1024 }
    }
}

/// What a start does when a run of the same key is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictPolicy {
    /// Return the open run.
    #[default]
    UseExisting,
    /// Refuse the start.
    Fail,
}

/// A start.
#[derive(Debug, Clone, PartialEq)]
pub struct StartWorkflow {
    /// Tenant.
    pub namespace: Namespace,
    /// Type.
    pub workflow_type: WorkflowType,
    /// Business key; made up by the server when absent.
    pub workflow_id: Option<WorkflowId>,
    /// Argument.
    pub input: Payload,
    /// Queue.
    pub task_queue: TaskQueue,
    /// The caller's id for the call.
    pub request_id: Option<RequestId>,
    /// Specified execution timeout.
    pub execution_timeout: Option<DurationMs>,
    /// What to do about an open run of the same key.
    pub conflict_policy: ConflictPolicy,
    /// How long one workflow task may stay with a worker.
    pub workflow_task_timeout: DurationMs,
    /// The worker session that may have the first workflow task with the reply.
    pub eager_worker: Option<WorkerId>,
    /// After how long the run counts as late.
    pub sla: Option<DurationMs>,
}

/// How long a workflow task may stay with a worker unless the start says otherwise.
pub const DEFAULT_WORKFLOW_TASK_TIMEOUT: DurationMs = DurationMs::from_millis_const(10_000);

impl StartWorkflow {
    /// Checks a start.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_proto(request: v1::StartWorkflowRequest, limits: &Limits) -> Result<Self, WireError> {
        let conflict_policy = match v1::ConflictPolicy::try_from(request.conflict_policy) {
            Ok(v1::ConflictPolicy::Unspecified | v1::ConflictPolicy::UseExisting) => ConflictPolicy::UseExisting,
            Ok(v1::ConflictPolicy::Fail) => ConflictPolicy::Fail,
            Err(unknown) => return Err(unknown_word("conflict_policy", &unknown.to_string(), "CONFLICT_POLICY_USE_EXISTING, CONFLICT_POLICY_FAIL")),
        };
        let workflow_task_timeout = match request.workflow_task_timeout_ms {
            None => DEFAULT_WORKFLOW_TASK_TIMEOUT,
            Some(millis @ 1_000..=600_000) => DurationMs::from_millis_const(millis),
            Some(millis) => {
                let found = format!("{millis} ms");
                return Err(WireError::Range { field: "workflow_task_timeout_ms".into(), found, allowed: "1000 ms to 10 minutes (600000 ms)" });
            }
        };
        Ok(Self {
            namespace: name_or_default("namespace", request.namespace)?,
            workflow_type: name("workflow_type", request.workflow_type)?,
            workflow_id: optional_name("workflow_id", request.workflow_id)?,
            input: payload::checked("input", request.input, limits.max_payload_bytes)?,
            task_queue: name_or_default("task_queue", request.task_queue)?,
            request_id: optional_name("request_id", request.request_id)?,
            execution_timeout: optional_span("execution_timeout_ms", request.execution_timeout_ms)?,
            conflict_policy,
            workflow_task_timeout,
            eager_worker: optional_name("eager_worker_id", request.eager_worker_id)?,
            sla: optional_span("sla_ms", request.sla_ms)?,
        })
    }
}

/// Names a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowRef {
    /// One run.
    ByExecution {
        /// Tenant: the run must be of it.
        namespace: Namespace,
        /// The run.
        execution_id: ExecutionId,
    },
    /// The open run of a business key, else its newest closed one.
    ByKey {
        /// Tenant.
        namespace: Namespace,
        /// Type.
        workflow_type: WorkflowType,
        /// Business key.
        workflow_id: WorkflowId,
    },
}

impl WorkflowRef {
    /// Checks a reference.
    ///
    /// # Errors
    /// [`WireError`] when it names nothing, both ways at once, or with a bad name.
    pub fn from_proto(it: Option<v1::WorkflowRef>) -> Result<Self, WireError> {
        let it = required("workflow", it)?;
        let read = || -> Result<Self, WireError> {
            let namespace = name_or_default("namespace", it.namespace)?;
            if it.execution_id.is_empty() {
                if it.workflow_type.is_empty() && it.workflow_id.is_empty() {
                    let allowed = "an execution_id, or a workflow_type and a workflow_id are allowed";
                    return Err(WireError::Missing { field: "execution_id".into(), allowed });
                }
                let (workflow_type, workflow_id) = (name("workflow_type", it.workflow_type)?, name("workflow_id", it.workflow_id)?);
                return Ok(Self::ByKey { namespace, workflow_type, workflow_id });
            }
            if !it.workflow_type.is_empty() || !it.workflow_id.is_empty() {
                let problem = "give either an execution_id, or a workflow_type and a workflow_id, not both";
                return Err(WireError::Combination { field: "execution_id".into(), problem });
            }
            Ok(Self::ByExecution { namespace, execution_id: execution_id("execution_id", &it.execution_id)? })
        };
        read().map_err(|error| error.within("workflow"))
    }

    /// To the wire.
    pub fn to_proto(&self) -> v1::WorkflowRef {
        match self {
            Self::ByExecution { namespace, execution_id } => {
                v1::WorkflowRef { namespace: namespace.to_string(), execution_id: execution_id.to_string(), ..Default::default() }
            }
            Self::ByKey { namespace, workflow_type, workflow_id } => v1::WorkflowRef {
                namespace: namespace.to_string(),
                workflow_type: workflow_type.to_string(),
                workflow_id: workflow_id.to_string(),
                execution_id: String::new(),
            },
        }
    }

    /// The slot that the run is in.
    pub fn slot(&self) -> Slot {
        match self {
            Self::ByExecution { execution_id, .. } => execution_id.slot(),
            Self::ByKey { namespace, workflow_id, .. } => Slot::of(namespace, workflow_id),
        }
    }

    /// The tenant.
    pub fn namespace(&self) -> &Namespace {
        match self {
            Self::ByExecution { namespace, .. } | Self::ByKey { namespace, .. } => namespace,
        }
    }
}

/// A signal.
#[derive(Debug, Clone, PartialEq)]
pub struct SignalWorkflow {
    /// Which run.
    pub workflow: WorkflowRef,
    /// Its name.
    pub name: SignalName,
    /// What it brings.
    pub payload: Payload,
    /// The caller's id for the call.
    pub request_id: Option<RequestId>,
}

impl SignalWorkflow {
    /// Checks a signal.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_proto(request: v1::SignalWorkflowRequest, limits: &Limits) -> Result<Self, WireError> {
        Ok(Self {
            workflow: WorkflowRef::from_proto(request.workflow)?,
            name: name("signal_name", request.signal_name)?,
            payload: payload::checked("payload", request.payload, limits.max_signal_bytes)?,
            request_id: optional_name("request_id", request.request_id)?,
        })
    }
}

/// A query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryWorkflow {
    /// Which run.
    pub workflow: WorkflowRef,
    /// Its name.
    pub name: QueryName,
    /// Its argument.
    pub args: Payload,
    /// How long to wait for a worker.
    pub timeout: Duration,
}

/// The longest wait of a query or for a result.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

impl QueryWorkflow {
    /// Checks a query.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_proto(request: v1::QueryWorkflowRequest, limits: &Limits) -> Result<Self, WireError> {
        let timeout_ms = if request.timeout_ms == 0 { 5_000 } else { request.timeout_ms };
        Ok(Self {
            workflow: WorkflowRef::from_proto(request.workflow)?,
            name: name("query_name", request.query_name)?,
            args: payload::checked("args", request.args, limits.max_payload_bytes)?,
            timeout: wait("timeout_ms", timeout_ms)?,
        })
    }
}

/// A wish to cancel or an order to terminate.
#[derive(Debug, Clone, PartialEq)]
pub struct EndWorkflow {
    /// Which run.
    pub workflow: WorkflowRef,
    /// Why, for people.
    pub reason: String,
    /// The caller's id for the call.
    pub request_id: Option<RequestId>,
}

impl EndWorkflow {
    /// Checks a wish to cancel.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_cancel(request: v1::CancelWorkflowRequest, limits: &Limits) -> Result<Self, WireError> {
        Self::new(request.workflow, request.reason, request.request_id, limits)
    }

    /// Checks an order to terminate.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_terminate(request: v1::TerminateWorkflowRequest, limits: &Limits) -> Result<Self, WireError> {
        Self::new(request.workflow, request.reason, request.request_id, limits)
    }

    fn new(workflow: Option<v1::WorkflowRef>, reason: String, request_id: String, limits: &Limits) -> Result<Self, WireError> {
        Ok(Self {
            workflow: WorkflowRef::from_proto(workflow)?,
            reason: text("reason", reason, limits.max_reason_bytes)?,
            request_id: optional_name("request_id", request_id)?,
        })
    }
}

/// A wait for a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetResult {
    /// Which run.
    pub workflow: WorkflowRef,
    /// How long to wait; zero answers at once.
    pub wait: Duration,
}

impl GetResult {
    /// Checks a wait.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_proto(request: v1::GetResultRequest) -> Result<Self, WireError> {
        Ok(Self { workflow: WorkflowRef::from_proto(request.workflow)?, wait: wait("wait_ms", request.wait_ms)? })
    }
}

/// A page of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetHistory {
    /// Which run.
    pub workflow: WorkflowRef,
    /// First event wanted.
    pub from: EventId,
    /// At most this many events.
    pub page_size: u32,
}

impl GetHistory {
    /// Checks a page of a history.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_proto(request: v1::GetHistoryRequest) -> Result<Self, WireError> {
        Ok(Self {
            workflow: WorkflowRef::from_proto(request.workflow)?,
            from: EventId(request.from_event_id.max(1)),
            page_size: page_size(request.page_size, 200, 1_000, "1 to 1000")?,
        })
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListWorkflows {
    /// Tenant.
    pub namespace: Namespace,
    /// Only this state.
    pub status: Option<Status>,
    /// Only paused runs, or only others.
    pub paused: Option<bool>,
    /// Only runs that were found to be late, or only others.
    pub sla_breached: Option<bool>,
    /// Only this type.
    pub workflow_type: Option<WorkflowType>,
    /// Only this business key.
    pub workflow_id: Option<WorkflowId>,
    /// At most this many.
    pub page_size: u32,
    /// Only runs after this one in the order of the list.
    pub after: Option<(Timestamp, ExecutionId)>,
}

impl ListWorkflows {
    /// Checks a page of a list. `SUSPENDED` means open: `RUNNING` or `PAUSED`.
    ///
    /// # Errors
    /// [`WireError`] naming the field and what is allowed.
    pub fn from_proto(request: v1::ListWorkflowsRequest) -> Result<Self, WireError> {
        let (status, paused) = match request.state.as_str() {
            "" => (None, None),
            "SUSPENDED" => (Some(Status::Running), None),
            PAUSED => (Some(Status::Running), Some(true)),
            word => {
                let status = Status::parse(word)
                    .ok_or_else(|| unknown_word("state", word, "RUNNING, PAUSED, COMPLETED, FAILED, CANCELLED, TERMINATED, TIMED_OUT, CONTINUED_AS_NEW"))?;
                (Some(status), (status == Status::Running).then_some(false))
            }
        };
        Ok(Self {
            namespace: name_or_default("namespace", request.namespace)?,
            status,
            paused,
            sla_breached: request.sla_breached,
            workflow_type: optional_name("workflow_type", request.workflow_type)?,
            workflow_id: optional_name("workflow_id", request.workflow_id)?,
            page_size: page_size(request.page_size, 50, 200, "1 to 200")?,
            after: if request.page_token.is_empty() { None } else { Some(decode_page_token(&request.page_token)?) },
        })
    }
}

/// The token of the page after a run.
pub fn encode_page_token(started_at: Timestamp, execution_id: ExecutionId) -> String {
    let mut bytes = started_at.as_millis().to_be_bytes().to_vec();
    bytes.extend_from_slice(execution_id.as_uuid().as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode_page_token(token: &str) -> Result<(Timestamp, ExecutionId), WireError> {
    let garbage = || WireError::Garbage { field: "page_token".into(), problem: "it is not the next_page_token of an earlier page".into() };
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| garbage())?;
    let (millis, id) = bytes.split_at_checked(8).ok_or_else(garbage)?;
    let millis: [u8; 8] = millis.try_into().map_err(|_| garbage())?;
    let id = crate::field::execution_id_bytes("page_token", id).map_err(|_| garbage())?;
    Ok((Timestamp::from_millis(i64::from_be_bytes(millis)), id))
}

fn page_size(found: u32, default: u32, most: u32, allowed: &'static str) -> Result<u32, WireError> {
    match found {
        0 => Ok(default),
        found if found <= most => Ok(found),
        found => Err(WireError::Range { field: "page_size".into(), found: found.to_string(), allowed }),
    }
}

fn wait(field: &str, millis: u64) -> Result<Duration, WireError> {
    let wait = Duration::from_millis(millis);
    if wait > MAX_WAIT {
        return Err(WireError::Range { field: field.to_owned(), found: format!("{millis} ms"), allowed: "0 to 60000 ms" });
    }
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> v1::StartWorkflowRequest {
        v1::StartWorkflowRequest { workflow_type: "order".into(), ..Default::default() }
    }

    fn refused(change: impl FnOnce(&mut v1::StartWorkflowRequest)) -> (String, String) {
        let mut request = start();
        change(&mut request);
        let error = StartWorkflow::from_proto(request, &Limits::default()).unwrap_err();
        (error.field().to_owned(), error.to_string())
    }

    fn json(data: impl Into<bytes::Bytes>) -> Option<v1::Payload> {
        Some(v1::Payload { data: data.into(), encoding: String::new() })
    }

    #[test]
    fn a_start_has_defaults() {
        let it = StartWorkflow::from_proto(start(), &Limits::default()).unwrap();
        assert_eq!((it.namespace.as_str(), it.task_queue.as_str(), it.workflow_id), ("default", "default", None));
        assert_eq!((it.input, it.conflict_policy), (Payload::null(), ConflictPolicy::UseExisting));
        assert_eq!((it.execution_timeout, it.workflow_task_timeout.as_millis()), (None, 10_000));
    }

    #[test]
    fn a_bad_start_is_refused_with_the_field_and_what_is_allowed() {
        assert_eq!(refused(|it| it.workflow_type.clear()).1, "workflow_type must not be empty; 1 to 255 bytes are allowed");
        assert_eq!(refused(|it| it.workflow_id = "x".repeat(256)).1, "workflow_id has 256 bytes; at most 255 are allowed");
        assert_eq!(refused(|it| it.task_queue = "a\0".into()).1, "task_queue contains U+0000, which is not allowed");
        assert_eq!(refused(|it| it.input = json("{")).0, "input");
        assert_eq!(refused(|it| it.input = json(vec![b'"', 0xff, b'"'])).1, "input is not valid UTF-8");
        assert_eq!(refused(|it| it.input = json(" ".repeat(2 * 1024 * 1024 + 1))).1, "input has 2097153 bytes; at most 2097152 are allowed");
        let (field, text) = refused(|it| it.execution_timeout_ms = Some(0));
        assert_eq!((field.as_str(), text.as_str()), ("execution_timeout_ms", "execution_timeout_ms is 0 ms; allowed are 1 ms to 10 years (315360000000 ms)"));
        assert_eq!(refused(|it| it.execution_timeout_ms = Some(u64::MAX)).0, "execution_timeout_ms");
        assert_eq!(refused(|it| it.workflow_task_timeout_ms = Some(999)).0, "workflow_task_timeout_ms");
        assert_eq!(refused(|it| it.conflict_policy = 9).0, "conflict_policy");
    }

    #[test]
    fn a_reference_names_a_run_one_way() {
        let read = |it: v1::WorkflowRef| WorkflowRef::from_proto(Some(it));
        assert_eq!(WorkflowRef::from_proto(None).unwrap_err().field(), "workflow");
        assert_eq!(read(v1::WorkflowRef::default()).unwrap_err().field(), "workflow.execution_id");
        let key = v1::WorkflowRef { workflow_type: "order".into(), workflow_id: "1".into(), ..Default::default() };
        assert_eq!(read(key.clone()).unwrap().to_proto(), v1::WorkflowRef { namespace: "default".into(), ..key.clone() });
        let both = v1::WorkflowRef { execution_id: "00010000-0000-8000-8000-000000000000".into(), ..key.clone() };
        assert_eq!(read(both).unwrap_err().field(), "workflow.execution_id");
        let half = v1::WorkflowRef { workflow_id: String::new(), ..key };
        assert_eq!(read(half).unwrap_err().field(), "workflow.workflow_id");
        let bad = v1::WorkflowRef { execution_id: "ffff0000-0000-8000-8000-000000000000".into(), ..Default::default() };
        assert!(read(bad).unwrap_err().to_string().contains("names slot 65535"));
    }

    #[test]
    fn pages_and_waits_are_bounded_and_page_tokens_read_back() {
        let id: ExecutionId = "00010000-0000-8000-8000-000000000000".parse().unwrap();
        let token = encode_page_token(Timestamp::from_millis(-5), id);
        let list = |change: fn(&mut v1::ListWorkflowsRequest)| {
            let mut request = v1::ListWorkflowsRequest::default();
            change(&mut request);
            ListWorkflows::from_proto(request)
        };
        let page = ListWorkflows::from_proto(v1::ListWorkflowsRequest { page_token: token, ..Default::default() }).unwrap();
        assert_eq!((page.after, page.page_size), (Some((Timestamp::from_millis(-5), id)), 50));
        assert_eq!(list(|it| it.page_token = "AAAA".into()).unwrap_err().field(), "page_token");
        assert_eq!(list(|it| it.page_token = "*".into()).unwrap_err().field(), "page_token");
        assert_eq!(list(|it| it.page_size = 201).unwrap_err().to_string(), "page_size is 201; allowed are 1 to 200");
        assert_eq!(list(|it| it.state = "running".into()).unwrap_err().field(), "state");
        let state = |request: v1::ListWorkflowsRequest| ListWorkflows::from_proto(request).map(|list| (list.status, list.paused)).unwrap();
        let of = |word: &str| state(v1::ListWorkflowsRequest { state: word.into(), ..Default::default() });
        assert_eq!(of("SUSPENDED"), (Some(Status::Running), None));
        assert_eq!(of("PAUSED"), (Some(Status::Running), Some(true)));
        assert_eq!(of("RUNNING"), (Some(Status::Running), Some(false)));
        assert_eq!(of("FAILED"), (Some(Status::Failed), None));
        let workflow = Some(v1::WorkflowRef { execution_id: id.to_string(), ..Default::default() });
        assert_eq!(GetResult::from_proto(v1::GetResultRequest { workflow, wait_ms: 60_001 }).unwrap_err().field(), "wait_ms");
    }
}
