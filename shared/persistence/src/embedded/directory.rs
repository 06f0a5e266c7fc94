//! [`DirectoryStore`] on SQLite. Everything that expires does so by the store's clock.

use super::EmbeddedStore;
use super::rows::{corrupt, execute, get, query, shard_id as shard_column, unsigned};
use crate::control::{DirectoryStore, Lease, Member, ServiceKind};
use crate::error::StoreError;
use async_trait::async_trait;
use harvest_ids::{Epoch, SLOT_COUNT, ShardId, Timestamp};
use rusqlite::{Row, params};

fn lease(row: &Row<'_>) -> Result<Lease, StoreError> {
    Ok(Lease { shard_id: shard_column(row, 0)?, owner: get(row, 1)?, address: get(row, 2)?, epoch: Epoch(unsigned(row, 3)?), remaining_ms: get(row, 4)? })
}

fn member(row: &Row<'_>) -> Result<Option<Member>, StoreError> {
    let service: String = get(row, 0)?;
    let Some(service) = ServiceKind::parse(&service) else { return Ok(None) };
    Ok(Some(Member { service, process_id: get(row, 1)?, address: get(row, 2)? }))
}

#[async_trait]
impl DirectoryStore for EmbeddedStore {
    async fn announce_member(&self, member: &Member, ttl_ms: u64) -> Result<(), StoreError> {
        let (member, now, until) = (member.clone(), self.now(), self.after(ttl_ms));
        self.engine
            .write(move |connection| {
                execute(connection, include_str!("member/expire.sql"), [now])?;
                execute(connection, include_str!("member/announce.sql"), params![member.process_id, member.service.as_str(), member.address, until])?;
                Ok(())
            })
            .await
    }

    async fn remove_member(&self, process_id: &str) -> Result<(), StoreError> {
        let process_id = process_id.to_owned();
        self.engine.write(move |connection| execute(connection, include_str!("member/remove.sql"), [process_id]).map(|_| ())).await
    }

    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let found = self.engine.read(|connection| query(connection, include_str!("member/list.sql"), [self.now()], member))?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn now(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(Some(Timestamp::from_millis(EmbeddedStore::now(self))))
    }

    async fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.engine.read(|connection| query(connection, include_str!("lease/list.sql"), [self.now()], lease))
    }

    async fn renew_leases(&self, process_id: &str, ttl_ms: u64) -> Result<Vec<ShardId>, StoreError> {
        let (process_id, until) = (process_id.to_owned(), self.after(ttl_ms));
        let renew =
            move |connection: &rusqlite::Connection| query(connection, include_str!("lease/renew.sql"), params![process_id, until], |row| shard_column(row, 0));
        let mut shards = self.engine.write(renew).await?;
        shards.sort_unstable();
        Ok(shards)
    }

    async fn acquire_lease(&self, shard_id: ShardId, process_id: &str, address: &str, ttl_ms: u64) -> Result<bool, StoreError> {
        let (process_id, address, now, until) = (process_id.to_owned(), address.to_owned(), self.now(), self.after(ttl_ms));
        let acquire = move |connection: &rusqlite::Connection| {
            execute(connection, include_str!("lease/acquire.sql"), params![shard_id.0, process_id, address, until, now])
        };
        Ok(self.engine.write(acquire).await? > 0)
    }

    async fn release_lease(&self, shard_id: ShardId, process_id: &str) -> Result<(), StoreError> {
        let (process_id, now) = (process_id.to_owned(), self.now());
        let release =
            move |connection: &rusqlite::Connection| execute(connection, include_str!("lease/release.sql"), params![shard_id.0, process_id, now]).map(|_| ());
        self.engine.write(release).await
    }

    async fn transfer_lease(&self, shard_id: ShardId, process_id: &str, to: &Member, ttl_ms: u64) -> Result<bool, StoreError> {
        let (process_id, to, until) = (process_id.to_owned(), to.clone(), self.after(ttl_ms));
        let transfer = move |connection: &rusqlite::Connection| {
            execute(connection, include_str!("lease/transfer.sql"), params![shard_id.0, process_id, to.process_id, to.address, until])
        };
        Ok(self.engine.write(transfer).await? > 0)
    }

    async fn slot_map(&self) -> Result<(u64, Vec<ShardId>), StoreError> {
        type Range = (u64, u16, u16, ShardId);
        let range = |row: &Row<'_>| -> Result<Range, StoreError> { Ok((unsigned(row, 0)?, get(row, 1)?, get(row, 2)?, shard_column(row, 3)?)) };
        let ranges = self.engine.read(|connection| query(connection, include_str!("slot/map.sql"), [], range))?;
        let mut slots = Vec::with_capacity(usize::from(SLOT_COUNT));
        let mut version = 0;
        for (found, first, last, shard) in ranges {
            version = found;
            if usize::from(first) != slots.len() {
                return Err(corrupt("slot map", format!("a range begins at {first} where {} was next", slots.len())));
            }
            slots.extend((first..=last).map(|_| shard));
        }
        if slots.len() != usize::from(SLOT_COUNT) {
            return Err(corrupt("slot map", format!("version {version} covers {} of {SLOT_COUNT} slots", slots.len())));
        }
        Ok((version, slots))
    }
}
