//! Options of connections.

use crate::error::StoreError;
use harvest_ids::{Epoch, ShardId};
use sqlx::postgres::PgConnectOptions;
use std::str::FromStr;
use std::time::Duration;

/// Bounds of a [`super::PgStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgOptions {
    /// The most sessions for everything but commits; writers are one more per owned shard.
    pub max_sessions: usize,
    /// How long a call waits for a free session.
    pub acquire_timeout: Duration,
    /// How long opening a connection may take.
    pub connect_timeout: Duration,
    /// The most that a statement may take on the server; the client waits two seconds longer.
    pub statement_timeout: Duration,
    /// How long a takeover waits for the statement in flight of the old owner before it ends that session.
    pub lock_timeout: Duration,
}

impl Default for PgOptions {
    fn default() -> Self {
        Self {
            max_sessions: 8,
            acquire_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_millis(500),
        }
    }
}

impl PgOptions {
    /// How long the client waits for a statement's answer before it gives the connection up: longer than the server's own limit.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.statement_timeout + Duration::from_secs(2)
    }
}

pub(super) fn parse_url(url: &str) -> Result<PgConnectOptions, StoreError> {
    PgConnectOptions::from_str(url).map_err(|error| StoreError::Refused(format!("the database URL is malformed: {error}")))
}

fn bounded(connect: PgConnectOptions, options: &PgOptions) -> PgConnectOptions {
    let millis = |duration: Duration| duration.as_millis().to_string();
    connect.options([
        ("statement_timeout", millis(options.statement_timeout)),
        ("idle_in_transaction_session_timeout", "5000".to_owned()),
        ("lock_timeout", millis(options.lock_timeout)),
        // The server notices a vanished client, so that a dead owner's session does not linger.
        ("tcp_keepalives_idle", "10".to_owned()),
        ("tcp_keepalives_interval", "5".to_owned()),
        ("tcp_keepalives_count", "3".to_owned()),
        // Every statement is an index lookup by construction. A generic plan made while a table was empty must not scan or sort it later.
        ("plan_cache_mode", "force_generic_plan".to_owned()),
        ("jit", "off".to_owned()),
        ("enable_seqscan", "off".to_owned()),
    ])
}

/// Options of the sessions that read and that write control tables.
pub fn session_options(connect: PgConnectOptions, options: &PgOptions) -> PgConnectOptions {
    // Lists stop early on an index in the wanted order; a bitmap or a sort would read everything first.
    bounded(connect, options).options([("enable_bitmapscan", "off"), ("enable_sort", "off")]).application_name("harvest").statement_cache_capacity(512)
}

/// Options of a shard's writer.
pub fn writer_options(connect: PgConnectOptions, options: &PgOptions, shard_id: ShardId, epoch: Epoch) -> PgConnectOptions {
    bounded(connect, options)
        .options([("search_path", format!("shard_{shard_id},harvest")), ("enable_nestloop", "off".to_owned())])
        .application_name(&format!("harvest:shard:{shard_id}:epoch:{epoch}"))
        .statement_cache_capacity(4)
}
