//! Sizes and waits of a shard.

use super::INBOX_OPERATIONS;
use super::admission::Room;
use std::time::Duration;

/// Sizes and waits of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Most runs in memory.
    pub cached_runs: usize,
    /// Most operations that are taken in and not answered; waits for outcomes and for answers to queries are counted apart.
    pub inbox_operations: usize,
    /// Most bytes of them.
    pub inbox_bytes: u64,
    /// Most callers that wait for outcomes.
    pub waiting_results: usize,
    /// Most queries that wait for workers.
    pub waiting_queries: usize,
    /// Most bytes of them.
    pub waiting_query_bytes: u64,
    /// For how long at most activity tasks found at a takeover are not offered: until all frontends have announced what workers run.
    pub takeover_hold: Duration,
    /// For how long at most a batch of a busy shard is kept open after the one before it.
    pub linger: Duration,
}

impl Tuning {
    /// Room of what is taken in and not answered.
    pub(crate) fn inbox(&self) -> Room {
        Room {
            operations: self.inbox_operations,
            bytes: self.inbox_bytes,
            operations_name: INBOX_OPERATIONS,
            bytes_name: "shard.inbox_bytes",
            share_name: "shard.inbox_share",
        }
    }

    /// Room of callers that wait for outcomes.
    pub(crate) fn results(&self) -> Room {
        let (operations_name, share_name) = ("shard.waiting_results", "shard.waiting_results_share");
        Room { operations: self.waiting_results, bytes: u64::MAX, operations_name, bytes_name: operations_name, share_name }
    }

    /// Room of queries that wait for workers.
    pub(crate) fn queries(&self) -> Room {
        Room {
            operations: self.waiting_queries,
            bytes: self.waiting_query_bytes,
            operations_name: "shard.waiting_queries",
            bytes_name: "shard.waiting_query_bytes",
            share_name: "shard.waiting_queries_share",
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            cached_runs: 10_000,
            inbox_operations: 4_096,
            inbox_bytes: 64 * 1024 * 1024,
            waiting_results: 50_000,
            waiting_queries: 1_000,
            waiting_query_bytes: 32 * 1024 * 1024,
            takeover_hold: Duration::from_millis(1_500),
            linger: Duration::from_millis(2),
        }
    }
}
