//! [`ConfigStore`] on Postgres.

use super::directory::millis;
use super::rows::{column, name, shard_id as shard_column, unsigned};
use super::{PgStore, bigint, integer};
use crate::control::{Acknowledgement, ConfigStore, LimitsChange, StoredLimits, StoredType, StoredWorker, TypeKind};
use crate::error::StoreError;
use async_trait::async_trait;
use harvest_ids::{Epoch, ShardId, Timestamp, WorkerId};
use sqlx::postgres::PgRow;
use std::collections::{BTreeMap, BTreeSet};

fn stored_limits(row: &PgRow) -> Result<StoredLimits, StoreError> {
    Ok(StoredLimits { generation: unsigned(row, "generation")?, number: unsigned(row, "number")?, document: column(row, "document")? })
}

fn number(value: u64) -> Result<i64, StoreError> {
    bigint(value).ok_or_else(|| StoreError::Refused(format!("{value} is beyond what the database can hold")))
}

#[async_trait]
impl ConfigStore for PgStore {
    async fn limits(&self) -> Result<StoredLimits, StoreError> {
        stored_limits(&self.sessions.take().await?.fetch_one(sqlx::query(include_str!("limits/read.sql"))).await?)
    }

    async fn change_limits(&self, change: &LimitsChange) -> Result<Option<StoredLimits>, StoreError> {
        let query = sqlx::query(include_str!("limits/change.sql"))
            .bind(number(change.expected.0)?)
            .bind(number(change.expected.1)?)
            .bind(&change.document)
            .bind(&change.actor)
            .bind(&change.reason)
            .bind(&change.summary);
        let row = self.sessions.take().await?.fetch_optional(query).await?;
        row.as_ref().map(stored_limits).transpose()
    }

    async fn acknowledge(&self, acknowledgements: &[Acknowledgement]) -> Result<(), StoreError> {
        // A row may occur once in the statement; the order is the same for everybody, so that two at once never wait in a circle.
        let mut newest = BTreeMap::new();
        for one in acknowledgements {
            let value = (number(one.epoch.0)?, number(one.version.0)?, number(one.version.1)?);
            let entry = newest.entry(integer(one.shard_id)?).or_insert(value);
            *entry = value.max(*entry);
        }
        let query = sqlx::query(include_str!("acknowledgement/store.sql"))
            .bind(newest.keys().copied().collect::<Vec<_>>())
            .bind(newest.values().map(|value| value.0).collect::<Vec<_>>())
            .bind(newest.values().map(|value| value.1).collect::<Vec<_>>())
            .bind(newest.values().map(|value| value.2).collect::<Vec<_>>());
        self.sessions.take().await?.execute(query).await.map(|_| ())
    }

    async fn acknowledgements(&self) -> Result<Vec<(ShardId, Epoch, Option<Acknowledgement>)>, StoreError> {
        let rows = self.sessions.take().await?.fetch_all(sqlx::query(include_str!("acknowledgement/list.sql"))).await?;
        rows.iter()
            .map(|row| {
                let shard_id = shard_column(row)?;
                let acknowledgement = match column::<Option<i64>>(row, "epoch")? {
                    None => None,
                    Some(_) => Some(Acknowledgement {
                        shard_id,
                        epoch: Epoch(unsigned(row, "epoch")?),
                        version: (unsigned(row, "generation")?, unsigned(row, "number")?),
                    }),
                };
                Ok((shard_id, Epoch(unsigned(row, "present_epoch")?), acknowledgement))
            })
            .collect()
    }

    async fn register_types(&self, types: &[StoredType]) -> Result<(), StoreError> {
        for (kind, statement) in
            [(TypeKind::Workflow, include_str!("workflow_type/register.sql")), (TypeKind::Activity, include_str!("activity_type/register.sql"))]
        {
            let of_kind = types.iter().filter(|one| one.kind == kind);
            let newest: BTreeMap<_, _> = of_kind.map(|one| ((one.namespace.as_str(), one.name.as_str()), one.info.as_slice())).collect();
            if newest.is_empty() {
                continue;
            }
            let query = sqlx::query(statement)
                .bind(newest.keys().map(|key| key.0).collect::<Vec<_>>())
                .bind(newest.keys().map(|key| key.1).collect::<Vec<_>>())
                .bind(newest.values().copied().collect::<Vec<_>>());
            self.sessions.take().await?.execute(query).await?;
        }
        Ok(())
    }

    async fn types(&self) -> Result<Vec<StoredType>, StoreError> {
        let rows = self.sessions.take().await?.fetch_all(sqlx::query(include_str!("workflow_type/list.sql"))).await?;
        rows.iter()
            .map(|row| {
                let kind = if column::<bool>(row, "is_workflow")? { TypeKind::Workflow } else { TypeKind::Activity };
                Ok(StoredType { kind, namespace: name(row, "namespace")?, name: column(row, "name")?, info: column(row, "info")? })
            })
            .collect()
    }

    async fn report_workers(&self, seen: &[StoredWorker], ended: &[WorkerId], ttl_ms: u64) -> Result<(), StoreError> {
        // A session that has ended does not come back: its id is new at each connection.
        let gone: BTreeSet<_> = ended.iter().collect();
        let seen: BTreeMap<_, _> = seen.iter().filter(|worker| !gone.contains(&worker.worker_id)).map(|worker| (worker.worker_id.as_str(), worker)).collect();
        let query = sqlx::query(include_str!("worker/report.sql"))
            .bind(seen.keys().copied().collect::<Vec<_>>())
            .bind(seen.values().map(|worker| worker.namespace.as_str()).collect::<Vec<_>>())
            .bind(seen.values().map(|worker| worker.hello.as_slice()).collect::<Vec<_>>())
            .bind(ended.iter().map(WorkerId::as_str).collect::<Vec<_>>())
            .bind(millis(ttl_ms));
        self.sessions.take().await?.execute(query).await.map(|_| ())
    }

    async fn workers(&self, ttl_ms: u64) -> Result<Vec<StoredWorker>, StoreError> {
        let rows = self.sessions.take().await?.fetch_all(sqlx::query(include_str!("worker/list.sql")).bind(millis(ttl_ms))).await?;
        rows.iter()
            .map(|row| {
                Ok(StoredWorker {
                    worker_id: name(row, "worker_id")?,
                    namespace: name(row, "namespace")?,
                    hello: column(row, "hello")?,
                    last_seen: Timestamp::from_millis(column(row, "last_seen")?),
                })
            })
            .collect()
    }
}
