//! The control tables: membership, leases, slot map, configuration.

use crate::error::StoreError;
use async_trait::async_trait;
use harvest_ids::{Epoch, Namespace, ShardId, Timestamp, WorkerId};

/// The five services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceKind {
    /// Stateless edge.
    Frontend,
    /// Owner of shards.
    History,
    /// Task queues.
    Matching,
    /// Deadlines.
    TimerScanner,
    /// Registry and limits.
    Config,
}

impl ServiceKind {
    /// The name in the table and on the command line: `frontend`, `history`, `matching`, `timer-scanner`, `config`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Frontend => "frontend",
            Self::History => "history",
            Self::Matching => "matching",
            Self::TimerScanner => "timer-scanner",
            Self::Config => "config",
        }
    }

    /// Reads [`ServiceKind::as_str`] back.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Frontend, Self::History, Self::Matching, Self::TimerScanner, Self::Config].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// One live process of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Which service.
    pub service: ServiceKind,
    /// New at each start of the process.
    pub process_id: String,
    /// Where it serves gRPC, e.g. `http://127.0.0.1:7300`.
    pub address: String,
}

/// Who is asked to own a shard. Load control only: safety is the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The shard.
    pub shard_id: ShardId,
    /// The process that holds it; `None` when released.
    pub owner: Option<String>,
    /// Where it serves gRPC.
    pub address: Option<String>,
    /// Milliseconds that it still holds by the database's clock; negative when expired for so long.
    pub remaining_ms: i64,
    /// The shard's epoch (of `harvest_shard`).
    pub epoch: Epoch,
}

/// Fleet-wide limits as stored: unknown fields are preserved because it is one JSON document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredLimits {
    /// Generation of the version.
    pub generation: u64,
    /// Number within the generation.
    pub number: u64,
    /// The JSON document.
    pub document: String,
}

/// A change of the limits: the row, its audit row and the version in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsChange {
    /// The version that it is based on; another one in the table means somebody was faster.
    pub expected: (u64, u64),
    /// The new JSON document.
    pub document: String,
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// What, as shown by audit.
    pub summary: String,
}

/// What an owner has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The shard.
    pub shard_id: ShardId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Version: generation, number.
    pub version: (u64, u64),
}

/// A worker session as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredWorker {
    /// The session.
    pub worker_id: WorkerId,
    /// Tenant.
    pub namespace: Namespace,
    /// Its hello, as encoded by proto.
    pub hello: Vec<u8>,
    /// When a frontend last reported it.
    pub last_seen: Timestamp,
}

/// What a declared type is a type of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TypeKind {
    /// Workflows.
    Workflow,
    /// Activities.
    Activity,
}

/// A type that some worker has declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredType {
    /// Of what.
    pub kind: TypeKind,
    /// Tenant.
    pub namespace: Namespace,
    /// Its name, unique within kind and tenant.
    pub name: String,
    /// What was declared, as encoded by proto (`harvest.v1.WorkflowTypeInfo`, `harvest.v1.ActivityTypeInfo`).
    pub info: Vec<u8>,
}

/// Membership, leases, slots.
#[async_trait]
pub trait DirectoryStore: Send + Sync + 'static {
    /// Adds this process or says that it is still alive. Rows not refreshed for `ttl_ms` are not listed; old ones are removed.
    async fn announce_member(&self, member: &Member, ttl_ms: u64) -> Result<(), StoreError>;
    /// Removes this process.
    async fn remove_member(&self, process_id: &str) -> Result<(), StoreError>;
    /// Live processes and all leases, in one statement each.
    async fn members(&self) -> Result<Vec<Member>, StoreError>;
    /// Announces this process and lists the live ones. One statement in a store that can (an idle fleet does little else).
    async fn check_in(&self, member: &Member, ttl_ms: u64) -> Result<Vec<Member>, StoreError> {
        self.announce_member(member, ttl_ms).await?;
        self.members().await
    }
    /// All leases with their shard's epoch.
    async fn leases(&self) -> Result<Vec<Lease>, StoreError>;
    /// Renews all leases of an owner by one array statement on the database's clock; returns the shards that it still holds.
    async fn renew_leases(&self, process_id: &str, ttl_ms: u64) -> Result<Vec<ShardId>, StoreError>;
    /// Takes a released or expired lease by compare-and-set; false when somebody else holds it.
    async fn acquire_lease(&self, shard_id: ShardId, process_id: &str, address: &str, ttl_ms: u64) -> Result<bool, StoreError>;
    /// Gives a lease back: anybody may take it.
    async fn release_lease(&self, shard_id: ShardId, process_id: &str) -> Result<(), StoreError>;
    /// Gives a lease to another process, which holds it from now on for `ttl_ms`; false when it was not this one's any more.
    async fn transfer_lease(&self, shard_id: ShardId, process_id: &str, to: &Member, ttl_ms: u64) -> Result<bool, StoreError>;
    /// What the database's clock shows; `None` for a store that has none of its own.
    async fn now(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }
    /// The slot map: (version, for each of the 4 096 slots its shard).
    async fn slot_map(&self) -> Result<(u64, Vec<ShardId>), StoreError>;
}

/// Configuration: written by the config service alone.
#[async_trait]
pub trait ConfigStore: Send + Sync + 'static {
    /// The limits in force.
    async fn limits(&self) -> Result<StoredLimits, StoreError>;
    /// Changes them; `None` when `expected` is not the stored version any more.
    async fn change_limits(&self, change: &LimitsChange) -> Result<Option<StoredLimits>, StoreError>;
    /// Stores owners' acknowledgements (an older epoch or version never replaces a newer one).
    async fn acknowledge(&self, acknowledgements: &[Acknowledgement]) -> Result<(), StoreError>;
    /// All acknowledgements with the shard's present epoch: (shard, present epoch, acknowledged epoch and version).
    async fn acknowledgements(&self) -> Result<Vec<(ShardId, Epoch, Option<Acknowledgement>)>, StoreError>;
    /// Adds types; known ones are replaced by the newest declaration.
    async fn register_types(&self, types: &[StoredType]) -> Result<(), StoreError>;
    /// All types ever registered.
    async fn types(&self) -> Result<Vec<StoredType>, StoreError>;
    /// Adds or refreshes sessions; removes ended ones and those not seen for `ttl_ms`.
    async fn report_workers(&self, seen: &[StoredWorker], ended: &[WorkerId], ttl_ms: u64) -> Result<(), StoreError>;
    /// Sessions seen within `ttl_ms`.
    async fn workers(&self, ttl_ms: u64) -> Result<Vec<StoredWorker>, StoreError>;
}
