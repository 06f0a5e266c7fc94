//! [`ConfigStore`] on SQLite.

use super::EmbeddedStore;
use super::rows::{Number, execute, get, name, query, shard_id as shard_column, unsigned};
use crate::control::{Acknowledgement, ConfigStore, LimitsChange, StoredLimits, StoredType, StoredWorker, TypeKind};
use crate::error::StoreError;
use async_trait::async_trait;
use harvest_ids::{Epoch, ShardId, Timestamp, WorkerId};
use rusqlite::{Connection, Row, params};

fn stored_limits(row: &Row<'_>) -> Result<StoredLimits, StoreError> {
    Ok(StoredLimits { generation: unsigned(row, 0)?, number: unsigned(row, 1)?, document: get(row, 2)? })
}

fn change(connection: &Connection, change: &LimitsChange, now: i64) -> Result<Option<StoredLimits>, StoreError> {
    let values = params![Number(change.expected.0), Number(change.expected.1), change.document];
    let Some(changed) = query(connection, include_str!("limits/change.sql"), values, stored_limits)?.pop() else { return Ok(None) };
    let audit = params![Number(changed.generation), Number(changed.number), now, change.actor, change.reason, change.summary, change.document];
    execute(connection, include_str!("limits/audit.sql"), audit)?;
    Ok(Some(changed))
}

#[async_trait]
impl ConfigStore for EmbeddedStore {
    async fn limits(&self) -> Result<StoredLimits, StoreError> {
        let found = self.engine.read(|connection| query(connection, include_str!("limits/read.sql"), [], stored_limits))?.pop();
        found.ok_or_else(|| StoreError::Corrupt("the row of the limits is missing".into()))
    }

    async fn change_limits(&self, wanted: &LimitsChange) -> Result<Option<StoredLimits>, StoreError> {
        let (wanted, now) = (wanted.clone(), self.now());
        self.engine.write(move |connection| change(connection, &wanted, now)).await
    }

    async fn acknowledge(&self, acknowledgements: &[Acknowledgement]) -> Result<(), StoreError> {
        let all = acknowledgements.to_vec();
        self.engine
            .write(move |connection| {
                for one in &all {
                    let values = params![one.shard_id.0, Number(one.epoch.0), Number(one.version.0), Number(one.version.1)];
                    execute(connection, include_str!("acknowledgement/store.sql"), values)?;
                }
                Ok(())
            })
            .await
    }

    async fn acknowledgements(&self) -> Result<Vec<(ShardId, Epoch, Option<Acknowledgement>)>, StoreError> {
        let read = |row: &Row<'_>| {
            let shard_id = shard_column(row, 0)?;
            let acknowledged = match get::<Option<i64>>(row, 2)? {
                None => None,
                Some(_) => Some(Acknowledgement { shard_id, epoch: Epoch(unsigned(row, 2)?), version: (unsigned(row, 3)?, unsigned(row, 4)?) }),
            };
            Ok((shard_id, Epoch(unsigned(row, 1)?), acknowledged))
        };
        self.engine.read(|connection| query(connection, include_str!("acknowledgement/list.sql"), [], read))
    }

    async fn register_types(&self, types: &[StoredType]) -> Result<(), StoreError> {
        let types = types.to_vec();
        self.engine
            .write(move |connection| {
                for one in &types {
                    let statement = match one.kind {
                        TypeKind::Workflow => include_str!("workflow_type/register.sql"),
                        TypeKind::Activity => include_str!("activity_type/register.sql"),
                    };
                    execute(connection, statement, params![one.namespace.as_str(), one.name, one.info])?;
                }
                Ok(())
            })
            .await
    }

    async fn types(&self) -> Result<Vec<StoredType>, StoreError> {
        let read = |kind| move |row: &Row<'_>| Ok(StoredType { kind, namespace: name(row, 0)?, name: get(row, 1)?, info: get(row, 2)? });
        self.engine.read(|connection| {
            let mut types = query(connection, include_str!("workflow_type/list.sql"), [], read(TypeKind::Workflow))?;
            types.extend(query(connection, include_str!("activity_type/list.sql"), [], read(TypeKind::Activity))?);
            Ok(types)
        })
    }

    async fn report_workers(&self, seen: &[StoredWorker], ended: &[WorkerId], ttl_ms: u64) -> Result<(), StoreError> {
        let (seen, ended, now) = (seen.to_vec(), ended.to_vec(), self.now());
        let oldest = now.saturating_sub(i64::try_from(ttl_ms).unwrap_or(i64::MAX));
        self.engine
            .write(move |connection| {
                for one in &seen {
                    execute(connection, include_str!("worker/report.sql"), params![one.worker_id.as_str(), one.namespace.as_str(), one.hello, now])?;
                }
                // A session that has ended does not come back: its id is new at each connection.
                for one in &ended {
                    execute(connection, include_str!("worker/remove.sql"), [one.as_str()])?;
                }
                execute(connection, include_str!("worker/expire.sql"), [oldest])?;
                Ok(())
            })
            .await
    }

    async fn workers(&self, ttl_ms: u64) -> Result<Vec<StoredWorker>, StoreError> {
        let oldest = self.now().saturating_sub(i64::try_from(ttl_ms).unwrap_or(i64::MAX));
        let read = |row: &Row<'_>| {
            Ok(StoredWorker { worker_id: name(row, 0)?, namespace: name(row, 1)?, hello: get(row, 2)?, last_seen: Timestamp::from_millis(get(row, 3)?) })
        };
        self.engine.read(|connection| query(connection, include_str!("worker/list.sql"), [oldest], read))
    }
}
