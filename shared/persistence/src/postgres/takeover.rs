//! Raising a shard's epoch, against an old owner that may be frozen with the fence row in its hands.

use super::error::{is_lock_timeout, store_error};
use super::rows::{epoch, unsigned};
use super::sessions::{Query, Session};
use super::{PgStore, integer};
use crate::error::StoreError;
use crate::store::Fence;
use harvest_ids::ShardId;

/// Each try waits `lock_timeout` for the fence row and then ends the session that holds it.
const TRIES: u32 = 6;

impl PgStore {
    /// Runs `raise` until it gets the fence row. `None` when it matched no row.
    pub(super) async fn raise<'q>(&self, shard_id: ShardId, raise: impl Fn() -> Query<'q> + Send) -> Result<Option<Fence>, StoreError> {
        let mut session = self.sessions.take().await?;
        for _ in 0..TRIES {
            match session.try_fetch_all(raise()).await {
                Ok(rows) => {
                    let Some(row) = rows.first() else { return Ok(None) };
                    return Ok(Some(Fence { epoch: epoch(row)?, batch_seq: unsigned(row, "batch_seq")? }));
                }
                Err(error) if is_lock_timeout(&error) => terminate_owner(&mut session, shard_id).await?,
                Err(error) => return Err(store_error(&error)),
            }
        }
        Err(StoreError::Unavailable(format!("the fence row of shard {shard_id} stayed locked through {TRIES} tries")))
    }
}

async fn terminate_owner(session: &mut Session, shard_id: ShardId) -> Result<(), StoreError> {
    let ended = session.fetch_all(sqlx::query(include_str!("shard/terminate.sql")).bind(integer(shard_id)?)).await?;
    tracing::warn!(shard = shard_id.0, sessions = ended.len(), "ended the session of the old owner, which held the fence row");
    Ok(())
}
