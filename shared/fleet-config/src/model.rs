//! What is configured.

use harvest_ids::{ActivityType, DurationMs, Namespace, TaskQueue, WorkflowType};
use harvest_proto::{internal::v1 as internal, v1};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The field of the execution timeout's ceiling, as in the protocol and in the stored document.
pub const MAX_EXECUTION_TIMEOUT_FIELD: &str = "max_workflow_execution_timeout_ms";

/// The field of the chain timeout's ceiling, as in the protocol and in the stored document.
pub const MAX_CHAIN_TIMEOUT_FIELD: &str = "max_workflow_chain_timeout_ms";

/// A version of the configuration: consecutive numbers within a generation, a new generation after the database was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Version {
    /// Raised when the control database is restored from a backup, so that a restored one never looks old.
    pub generation: u64,
    /// Consecutive within a generation.
    pub number: u64,
}

impl Version {
    /// Whether nothing lies between `self` and `other`.
    pub fn is_followed_by(self, other: Self) -> bool {
        self.generation == other.generation && self.number.checked_add(1) == Some(other.number)
    }

    /// From (generation, number).
    pub fn from_pair((generation, number): (u64, u64)) -> Self {
        Self { generation, number }
    }

    /// As (generation, number).
    pub fn to_pair(self) -> (u64, u64) {
        (self.generation, self.number)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.number)
    }
}

impl From<v1::ConfigVersion> for Version {
    fn from(version: v1::ConfigVersion) -> Self {
        Self { generation: version.generation, number: version.number }
    }
}

impl From<Version> for v1::ConfigVersion {
    fn from(version: Version) -> Self {
        Self { generation: version.generation, number: version.number }
    }
}

/// Ceilings of what users may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FleetLimits {
    /// Ceiling of a specified execution timeout.
    pub max_workflow_execution_timeout: Option<DurationMs>,
    /// Ceiling of a chain's lifetime, and the lifetime of chains that declare none.
    pub max_workflow_chain_timeout: Option<DurationMs>,
}

impl FleetLimits {
    /// Reads the stored document. Unknown fields are a newer release's: they stay in the document and change nothing here, and so does a
    /// value that this release cannot read.
    pub fn from_document(document: &serde_json::Value) -> Self {
        let span = |field: &str| span(field, document.get(field).and_then(serde_json::Value::as_u64));
        Self { max_workflow_execution_timeout: span(MAX_EXECUTION_TIMEOUT_FIELD), max_workflow_chain_timeout: span(MAX_CHAIN_TIMEOUT_FIELD) }
    }
}

fn span(field: &str, millis: Option<u64>) -> Option<DurationMs> {
    millis.and_then(|millis| DurationMs::new(field, millis).ok())
}

impl From<v1::FleetLimits> for FleetLimits {
    fn from(limits: v1::FleetLimits) -> Self {
        Self {
            max_workflow_execution_timeout: span(MAX_EXECUTION_TIMEOUT_FIELD, limits.max_workflow_execution_timeout_ms),
            max_workflow_chain_timeout: span(MAX_CHAIN_TIMEOUT_FIELD, limits.max_workflow_chain_timeout_ms),
        }
    }
}

impl From<FleetLimits> for v1::FleetLimits {
    fn from(limits: FleetLimits) -> Self {
        Self {
            max_workflow_execution_timeout_ms: limits.max_workflow_execution_timeout.map(DurationMs::as_millis),
            max_workflow_chain_timeout_ms: limits.max_workflow_chain_timeout.map(DurationMs::as_millis),
        }
    }
}

/// What code declares about a workflow type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkflowTypeInfo {
    /// Declared execution timeout.
    pub execution_timeout: Option<DurationMs>,
    /// Declared lifetime of its chains.
    pub chain_execution_timeout: Option<DurationMs>,
    /// After how long its runs count as late.
    pub sla: Option<DurationMs>,
}

impl WorkflowTypeInfo {
    /// What a worker has declared; spans that this release refuses count as not declared.
    pub fn from_proto(info: &v1::WorkflowTypeInfo) -> Self {
        Self {
            execution_timeout: span("execution_timeout_ms", Some(info.execution_timeout_ms)), // 0 = none
            chain_execution_timeout: span("chain_execution_timeout_ms", Some(info.chain_execution_timeout_ms)),
            sla: span("sla_ms", Some(info.sla_ms)),
        }
    }

    /// The same under its name.
    pub fn to_proto(&self, name: &WorkflowType) -> v1::WorkflowTypeInfo {
        let millis = |span: Option<DurationMs>| span.map_or(0, DurationMs::as_millis);
        v1::WorkflowTypeInfo {
            name: name.to_string(),
            execution_timeout_ms: millis(self.execution_timeout),
            chain_execution_timeout_ms: millis(self.chain_execution_timeout),
            sla_ms: millis(self.sla),
        }
    }
}

/// Options of activities' attributes, as workers send them.
pub type ActivityTypes = BTreeMap<Namespace, BTreeMap<ActivityType, v1::ActivityOptions>>;

/// The configuration at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FleetConfig {
    /// The version of the limits.
    pub version: Version,
    /// The limits.
    pub limits: FleetLimits,
    /// Types that workers have ever registered.
    pub workflow_types: BTreeMap<Namespace, BTreeMap<WorkflowType, WorkflowTypeInfo>>,
    /// What attributes of activities say, of types that workers have ever registered; those that say nothing included.
    pub activity_types: Arc<ActivityTypes>,
    /// Queues that live workers serve.
    pub served_queues: BTreeSet<(Namespace, TaskQueue)>,
    /// Whether a snapshot was ever pulled. Until then everything above is empty, and limits are not in force: it fails open.
    pub loaded: bool,
}

impl FleetConfig {
    /// What is registered about a type; `None` when no worker ever declared it.
    pub fn workflow_type(&self, namespace: &Namespace, workflow_type: &WorkflowType) -> Option<&WorkflowTypeInfo> {
        self.workflow_types.get(namespace)?.get(workflow_type)
    }

    /// The names of a namespace's types.
    pub fn type_names(&self, namespace: &Namespace) -> impl Iterator<Item = &WorkflowType> {
        self.workflow_types.get(namespace).into_iter().flat_map(BTreeMap::keys)
    }

    /// Whether a live worker serves the queue.
    pub fn is_served(&self, namespace: &Namespace, queue: &TaskQueue) -> bool {
        self.served_queues.contains(&(namespace.clone(), queue.clone()))
    }
}

impl From<internal::ConfigSnapshot> for FleetConfig {
    /// Names that this release refuses are left out: the config service has checked them, so that they can only be a newer release's.
    fn from(snapshot: internal::ConfigSnapshot) -> Self {
        let mut workflow_types: BTreeMap<Namespace, BTreeMap<WorkflowType, WorkflowTypeInfo>> = BTreeMap::new();
        for registered in snapshot.workflow_types {
            let Some(info) = registered.workflow_type else { continue };
            let (Ok(namespace), Ok(name)) = (Namespace::new(&registered.namespace), WorkflowType::new(&info.name)) else { continue };
            workflow_types.entry(namespace).or_default().insert(name, WorkflowTypeInfo::from_proto(&info));
        }
        let mut activity_types = ActivityTypes::new();
        for registered in snapshot.activity_types {
            let Some(info) = registered.activity_type else { continue };
            let (Ok(namespace), Ok(name)) = (Namespace::new(&registered.namespace), ActivityType::new(&info.name)) else { continue };
            activity_types.entry(namespace).or_default().insert(name, info.options.unwrap_or_default());
        }
        let queue = |served: internal::ServedQueue| Some((Namespace::new(&served.namespace).ok()?, TaskQueue::new(&served.task_queue).ok()?));
        Self {
            version: snapshot.version.unwrap_or_default().into(),
            limits: snapshot.limits.unwrap_or_default().into(),
            workflow_types,
            activity_types: Arc::new(activity_types),
            served_queues: snapshot.served_queues.into_iter().filter_map(queue).collect(),
            loaded: true,
        }
    }
}
