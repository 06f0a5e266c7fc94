//! Configuration of the history service.

use crate::shard::actor::Tuning;
use harvest_runtime::config::{Faults, Settings};
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;

/// All keys; `deploy/config/history.default.toml` documents them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the TOML is the documentation
pub struct Config {
    pub fleet: String,
    pub grpc_listen: SocketAddr,
    pub http_listen: SocketAddr,
    pub advertise_address: String,
    pub database_url: String,
    pub redis_url: String,
    pub database_sessions: usize,
    pub max_request_bytes: u64,
    pub shard: ShardSection,
    pub lease: LeaseSection,
}

/// The engine of a shard.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the TOML is the documentation
pub struct ShardSection {
    pub cached_runs: usize,
    pub cache_bytes: u64,
    pub inbox_operations: usize,
    pub inbox_bytes: u64,
    pub waiting_results: usize,
    pub waiting_queries: usize,
    pub waiting_query_bytes: u64,
    pub takeover_hold_ms: u64,
    pub linger_ms: u64,
    pub sticky_timeout_ms: u64,
}

/// The protocol of the leases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the TOML is the documentation
pub struct LeaseSection {
    pub ttl_ms: u64,
    pub renew_interval_ms: u64,
}

impl Settings for Config {
    const DEFAULTS: &'static str = include_str!("../../../deploy/config/history.default.toml");

    fn check(&self, faults: &mut Faults) {
        faults.required("fleet", &self.fleet);
        faults.postgres_url("database_url", &self.database_url);
        faults.redis_url("redis_url", &self.redis_url);
        faults.range("database_sessions", self.database_sessions, 1..=1_000);
        faults.range("max_request_bytes", self.max_request_bytes, 16_777_216..=68_719_476_736);
        faults.range("shard.cached_runs", self.shard.cached_runs, 1..=10_000_000);
        faults.range("shard.cache_bytes", self.shard.cache_bytes, 1_048_576..=1_099_511_627_776);
        faults.range("shard.inbox_operations", self.shard.inbox_operations, 1..=1_000_000);
        faults.range("shard.inbox_bytes", self.shard.inbox_bytes, 16_777_216..=68_719_476_736);
        faults.range("shard.waiting_results", self.shard.waiting_results, 1..=10_000_000);
        faults.range("shard.waiting_queries", self.shard.waiting_queries, 1..=1_000_000);
        faults.range("shard.waiting_query_bytes", self.shard.waiting_query_bytes, 4_194_304..=68_719_476_736);
        faults.range("shard.takeover_hold_ms", self.shard.takeover_hold_ms, 0..=60_000);
        faults.range("shard.linger_ms", self.shard.linger_ms, 0..=100);
        faults.range("shard.sticky_timeout_ms", self.shard.sticky_timeout_ms, 0..=60_000);
        faults.range("lease.ttl_ms", self.lease.ttl_ms, 500..=60_000);
        faults.range("lease.renew_interval_ms", self.lease.renew_interval_ms, 50..=self.lease.ttl_ms / 2);
    }
}

impl ShardSection {
    /// Sizes and waits for the engine.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            cached_runs: self.cached_runs,
            inbox_operations: self.inbox_operations,
            inbox_bytes: self.inbox_bytes,
            waiting_results: self.waiting_results,
            waiting_queries: self.waiting_queries,
            waiting_query_bytes: self.waiting_query_bytes,
            takeover_hold: Duration::from_millis(self.takeover_hold_ms),
            linger: Duration::from_millis(self.linger_ms),
        }
    }
}
