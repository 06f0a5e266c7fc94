//! What the stores hold, read past the services.

use crate::fleet::{Fleet, Topology};
use anyhow::Context as _;
use harvest_ids::{ExecutionId, Namespace, ShardId};
use harvest_persistence::control::DirectoryStore;
use harvest_persistence::embedded::EmbeddedStore;
use harvest_persistence::postgres::{PgOptions, PgStore};
use harvest_persistence::store::{RunFilter, ShardStore, StoredRun};
use harvest_runtime::{Clock, SystemClock};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Row};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Runs per page of a listing.
const PAGE: u32 = 200;

/// The store of a fleet, for reading.
pub struct Stores {
    runs: Arc<dyn ShardStore>,
    slots: Vec<ShardId>,
}

impl Stores {
    /// Opens it. `harvest dev` is ended first: its file has one user at a time.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub async fn open(fleet: &Fleet) -> anyhow::Result<Self> {
        if fleet.topology() == Topology::Dev {
            fleet.release_store().await?;
            let store = EmbeddedStore::open(fleet.store_file())?;
            let (_, slots) = store.slot_map().await?;
            return Ok(Self { runs: Arc::new(store), slots });
        }
        let store = PgStore::connect(&fleet.database()?.url, PgOptions { max_sessions: 2, ..PgOptions::default() }).await?;
        let (_, slots) = store.slot_map().await?;
        Ok(Self { runs: Arc::new(store), slots })
    }

    /// The shard of a run.
    ///
    /// # Errors
    /// When the slot map is too short.
    pub fn shard_of(&self, execution_id: ExecutionId) -> anyhow::Result<ShardId> {
        self.slots.get(usize::from(execution_id.slot().number())).copied().context("the slot map covers every slot")
    }

    /// One run with all its records.
    ///
    /// # Errors
    /// When it is not there or cannot be read.
    pub async fn run(&self, execution_id: ExecutionId) -> anyhow::Result<StoredRun> {
        let shard = self.shard_of(execution_id)?;
        self.runs.load_run(shard, execution_id).await?.with_context(|| format!("the list has {execution_id}, its shard has not"))
    }

    /// Every run of a tenant, newest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn runs(&self, namespace: &str) -> anyhow::Result<Vec<StoredRun>> {
        let mut filter = RunFilter { limit: PAGE, ..RunFilter::all(Namespace::new(namespace)?) };
        let mut runs = Vec::new();
        loop {
            let page = self.runs.list(&filter).await?;
            for row in &page {
                runs.push(self.run(row.execution_id).await?);
            }
            match page.last() {
                Some(last) if page.len() == usize::try_from(PAGE)? => filter.after = Some((last.started_at, last.execution_id)),
                _ => return Ok(runs),
            }
        }
    }
}

/// The fence of one shard and who holds its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardView {
    /// Raised by each takeover.
    pub epoch: i64,
    /// Raised by each commit.
    pub batch_seq: i64,
    /// Where the holder of the lease serves.
    pub address: Option<String>,
}

/// Looks at the fences while the fleet runs.
#[derive(Clone)]
pub struct Fences {
    pool: PgPool,
}

impl Fences {
    /// Opens a connection to the fleet's database.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn open(fleet: &Fleet) -> anyhow::Result<Self> {
        let pool = PgPoolOptions::new().max_connections(2).acquire_timeout(Duration::from_secs(10)).connect(&fleet.database()?.url).await?;
        Ok(Self { pool })
    }

    /// All shards now.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn shards(&self) -> anyhow::Result<BTreeMap<i32, ShardView>> {
        let text = "SELECT s.shard_id, s.epoch, s.batch_seq, l.address FROM harvest.harvest_shard s LEFT JOIN harvest.harvest_lease l USING (shard_id)";
        let rows = sqlx::query(text).fetch_all(&self.pool).await?;
        let view = |row: &sqlx::postgres::PgRow| -> Result<_, sqlx::Error> {
            Ok((row.try_get("shard_id")?, ShardView { epoch: row.try_get("epoch")?, batch_seq: row.try_get("batch_seq")?, address: row.try_get("address")? }))
        };
        Ok(rows.iter().map(view).collect::<Result<_, _>>()?)
    }

    /// Some run of a tenant on one of these shards, with its shard.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn run_on(&self, namespace: &str, shards: &[i32]) -> anyhow::Result<Option<(i32, String)>> {
        let text = "SELECT shard_id, execution_id::text FROM harvest.run WHERE namespace = $1 AND shard_id = ANY($2) LIMIT 1";
        Ok(sqlx::query_as(text).bind(namespace).bind(shards).fetch_optional(&self.pool).await?)
    }

    /// Transactions that this database has committed, of any kind.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn total_batches(&self) -> anyhow::Result<i64> {
        Ok(self.shards().await?.values().map(|shard| shard.batch_seq).sum())
    }

    /// Shards whose lease is held by a process of the fleet, by the process' name.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn owners(&self, fleet: &Fleet) -> anyhow::Result<BTreeMap<i32, String>> {
        let shards = self.shards().await?;
        Ok(shards.iter().filter_map(|(shard, view)| Some((*shard, fleet.process_at(view.address.as_deref()?)?))).collect())
    }

    /// Waits until each of these shards has been taken over and has committed since: how long from now until the last one had a new owner,
    /// and until the last one had its owner's first commit.
    ///
    /// # Errors
    /// When it does not happen within `longest`.
    pub async fn takeover(&self, before: &BTreeMap<i32, ShardView>, lost: &[i32], longest: Duration) -> anyhow::Result<(Duration, Duration)> {
        let clock = SystemClock::new();
        let begin = clock.monotonic();
        let wait = async |what: &str, done: fn(&ShardView, &ShardView) -> bool| {
            crate::eventually(format!("every lost shard {what}"), longest, || async {
                let now = self.shards().await?;
                let waiting: Vec<_> = lost.iter().filter(|shard| !done(&before[*shard], &now[*shard])).collect();
                anyhow::ensure!(waiting.is_empty(), "not yet: {waiting:?}");
                Ok(Some(clock.monotonic() - begin))
            })
            .await
        };
        let owned = wait("has a new owner", |before, now| now.epoch > before.epoch).await?;
        Ok((owned, wait("has a commit of its new owner", progressed).await?))
    }
}

fn progressed(before: &ShardView, now: &ShardView) -> bool {
    now.epoch > before.epoch && now.batch_seq > before.batch_seq
}
