//! Configuration of the timer scanner.

use crate::scanner::Options;
use harvest_runtime::config::{Faults, Settings};
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;

/// All keys; `deploy/config/timer-scanner.default.toml` documents them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the TOML is the documentation
pub struct Config {
    pub grpc_listen: SocketAddr,
    pub http_listen: SocketAddr,
    pub advertise_address: String,
    pub database_url: String,
    pub database_sessions: usize,
    pub scan: ScanSection,
}

/// Sizes and times of scanning.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the TOML is the documentation
pub struct ScanSection {
    pub horizon_ms: u64,
    pub busy_interval_ms: u64,
    pub idle_interval_ms: u64,
    pub limit: u32,
    pub max_armed: usize,
}

impl Settings for Config {
    const DEFAULTS: &'static str = include_str!("../../../deploy/config/timer-scanner.default.toml");

    fn check(&self, faults: &mut Faults) {
        faults.postgres_url("database_url", &self.database_url);
        faults.range("database_sessions", self.database_sessions, 1..=1_000);
        faults.range("scan.horizon_ms", self.scan.horizon_ms, 1_000..=600_000);
        faults.range("scan.busy_interval_ms", self.scan.busy_interval_ms, 50..=self.scan.idle_interval_ms);
        faults.range("scan.idle_interval_ms", self.scan.idle_interval_ms, 50..=self.scan.horizon_ms);
        faults.range("scan.limit", self.scan.limit, 100..=100_000);
        faults.range("scan.max_armed", self.scan.max_armed, 1_000..=10_000_000);
    }
}

impl ScanSection {
    pub(crate) fn options(&self) -> Options {
        Options {
            horizon: Duration::from_millis(self.horizon_ms),
            busy_interval: Duration::from_millis(self.busy_interval_ms),
            idle_interval: Duration::from_millis(self.idle_interval_ms),
            scan_limit: self.limit,
            max_armed: self.max_armed,
        }
    }
}
