//! Configuration of the config service.

use harvest_runtime::config::{Faults, Settings};
use serde::Deserialize;
use std::net::SocketAddr;

/// All keys; `deploy/config/config.default.toml` documents them.
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
    pub beacon_interval_ms: u64,
    pub check_interval_ms: u64,
    pub worker_ttl_ms: u64,
}

impl Settings for Config {
    const DEFAULTS: &'static str = include_str!("../../../deploy/config/config.default.toml");

    fn check(&self, faults: &mut Faults) {
        faults.required("fleet", &self.fleet);
        faults.postgres_url("database_url", &self.database_url);
        faults.redis_url("redis_url", &self.redis_url);
        faults.range("database_sessions", self.database_sessions, 1..=1_000);
        faults.range("beacon_interval_ms", self.beacon_interval_ms, 100..=2_000);
        faults.range("check_interval_ms", self.check_interval_ms, 100..=60_000);
        faults.range("worker_ttl_ms", self.worker_ttl_ms, 6_000..=600_000);
    }
}
