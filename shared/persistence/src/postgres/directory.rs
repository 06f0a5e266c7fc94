//! [`DirectoryStore`] on Postgres. Everything that expires does so by the database's clock.

use super::rows::{column, corrupt, epoch, shard_id as shard_column, unsigned};
use super::{PgStore, bigint, integer};
use crate::control::{DirectoryStore, Lease, Member, ServiceKind};
use crate::error::StoreError;
use async_trait::async_trait;
use harvest_ids::{SLOT_COUNT, ShardId, Timestamp};
use sqlx::postgres::PgRow;

/// A span in milliseconds as `bigint`; one beyond it never ends in practice.
pub(super) fn millis(span: u64) -> i64 {
    /// 10 000 years: what Postgres can still add to now.
    const LONGEST: i64 = 315_360_000_000_000;
    bigint(span).unwrap_or(LONGEST).min(LONGEST)
}

fn lease(row: &PgRow) -> Result<Lease, StoreError> {
    Ok(Lease {
        shard_id: shard_column(row)?,
        owner: column(row, "owner")?,
        address: column(row, "address")?,
        remaining_ms: column(row, "remaining_ms")?,
        epoch: epoch(row)?,
    })
}

fn member(row: &PgRow) -> Result<Option<Member>, StoreError> {
    let service: String = column(row, "service")?;
    // A service that this version does not know is a newer version's: not ours to list.
    let Some(service) = ServiceKind::parse(&service) else { return Ok(None) };
    Ok(Some(Member { service, process_id: column(row, "process_id")?, address: column(row, "address")? }))
}

#[async_trait]
impl DirectoryStore for PgStore {
    async fn announce_member(&self, member: &Member, ttl_ms: u64) -> Result<(), StoreError> {
        let query =
            sqlx::query(include_str!("member/announce.sql")).bind(&member.process_id).bind(member.service.as_str()).bind(&member.address).bind(millis(ttl_ms));
        self.sessions.take().await?.execute(query).await.map(|_| ())
    }

    async fn remove_member(&self, process_id: &str) -> Result<(), StoreError> {
        self.sessions.take().await?.execute(sqlx::query(include_str!("member/remove.sql")).bind(process_id)).await.map(|_| ())
    }

    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let rows = self.sessions.take().await?.fetch_all(sqlx::query(include_str!("member/list.sql"))).await?;
        rows.iter().filter_map(|row| member(row).transpose()).collect()
    }

    async fn check_in(&self, member: &Member, ttl_ms: u64) -> Result<Vec<Member>, StoreError> {
        let query =
            sqlx::query(include_str!("member/check_in.sql")).bind(&member.process_id).bind(member.service.as_str()).bind(&member.address).bind(millis(ttl_ms));
        let rows = self.sessions.take().await?.fetch_all(query).await?;
        rows.iter().filter_map(|row| self::member(row).transpose()).collect()
    }

    async fn now(&self) -> Result<Option<Timestamp>, StoreError> {
        let row = self.sessions.take().await?.fetch_one(sqlx::query(include_str!("clock/now.sql"))).await?;
        Ok(Some(Timestamp::from_millis(column(&row, "now")?)))
    }

    async fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        let rows = self.sessions.take().await?.fetch_all(sqlx::query(include_str!("lease/list.sql"))).await?;
        rows.iter().map(lease).collect()
    }

    async fn renew_leases(&self, process_id: &str, ttl_ms: u64) -> Result<Vec<ShardId>, StoreError> {
        let query = sqlx::query(include_str!("lease/renew.sql")).bind(process_id).bind(millis(ttl_ms));
        let rows = self.sessions.take().await?.fetch_all(query).await?;
        let mut shards = rows.iter().map(shard_column).collect::<Result<Vec<_>, _>>()?;
        shards.sort_unstable();
        Ok(shards)
    }

    async fn acquire_lease(&self, shard_id: ShardId, process_id: &str, address: &str, ttl_ms: u64) -> Result<bool, StoreError> {
        let query = sqlx::query(include_str!("lease/acquire.sql")).bind(integer(shard_id)?).bind(process_id).bind(address).bind(millis(ttl_ms));
        Ok(self.sessions.take().await?.execute(query).await? > 0)
    }

    async fn release_lease(&self, shard_id: ShardId, process_id: &str) -> Result<(), StoreError> {
        let query = sqlx::query(include_str!("lease/release.sql")).bind(integer(shard_id)?).bind(process_id);
        self.sessions.take().await?.execute(query).await.map(|_| ())
    }

    async fn transfer_lease(&self, shard_id: ShardId, process_id: &str, to: &Member, ttl_ms: u64) -> Result<bool, StoreError> {
        let query = sqlx::query(include_str!("lease/transfer.sql")).bind(integer(shard_id)?).bind(process_id);
        let query = query.bind(&to.process_id).bind(&to.address).bind(millis(ttl_ms));
        Ok(self.sessions.take().await?.execute(query).await? > 0)
    }

    async fn slot_map(&self) -> Result<(u64, Vec<ShardId>), StoreError> {
        let rows = self.sessions.take().await?.fetch_all(sqlx::query(include_str!("slot/map.sql"))).await?;
        let mut slots = Vec::with_capacity(usize::from(SLOT_COUNT));
        let mut version = 0;
        for row in &rows {
            version = unsigned(row, "version")?;
            let (first, last): (i32, i32) = (column(row, "first_slot")?, column(row, "last_slot")?);
            if usize::try_from(first) != Ok(slots.len()) {
                return Err(corrupt("slot map", format!("a range begins at {first} where {} was next", slots.len())));
            }
            let shard = shard_column(row)?;
            slots.extend((first..=last).map(|_| shard));
        }
        if slots.len() != usize::from(SLOT_COUNT) {
            return Err(corrupt("slot map", format!("version {version} covers {} of {SLOT_COUNT} slots", slots.len())));
        }
        Ok((version, slots))
    }
}
