//! Configuration of the frontend.

use crate::edge::Options;
use harvest_runtime::config::{Faults, Settings};
use harvest_wire::start::Limits;
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;

/// All keys; `deploy/config/frontend.default.toml` documents them.
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
    pub default_deadline_ms: u64,
    pub drain_timeout_ms: u64,
    pub max_connection_age_ms: u64,
    pub grpc_max_connections: usize,
    pub http_header_timeout_ms: u64,
    pub http_body_timeout_ms: u64,
    pub http_max_connections: usize,
    pub limits: LimitsSection,
    pub workers: WorkersSection,
}

/// Sizes of calls.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the TOML is the documentation
pub struct LimitsSection {
    pub max_payload_bytes: usize,
    pub max_signal_bytes: usize,
    pub max_reason_bytes: usize,
    pub max_body_bytes: usize,
    pub max_request_bytes: u64,
}

/// Sessions of workers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the TOML is the documentation
pub struct WorkersSection {
    pub max_sessions: usize,
    pub max_credit: u32,
    pub announce_interval_ms: u64,
    pub announce_timeout_ms: u64,
    pub report_interval_ms: u64,
}

/// Payloads, with their envelope, must fit the largest gRPC message.
const LARGEST_PAYLOAD: usize = 4 * 1024 * 1024;

impl Settings for Config {
    const DEFAULTS: &'static str = include_str!("../../../deploy/config/frontend.default.toml");

    fn check(&self, faults: &mut Faults) {
        faults.required("fleet", &self.fleet);
        faults.postgres_url("database_url", &self.database_url);
        faults.redis_url("redis_url", &self.redis_url);
        faults.range("database_sessions", self.database_sessions, 1..=1_000);
        faults.range("default_deadline_ms", self.default_deadline_ms, 100..=60_000);
        faults.range("drain_timeout_ms", self.drain_timeout_ms, 0..=600_000);
        faults.range("max_connection_age_ms", self.max_connection_age_ms, 0..=86_400_000);
        faults.range("grpc_max_connections", self.grpc_max_connections, 1..=1_000_000);
        faults.range("http_header_timeout_ms", self.http_header_timeout_ms, 100..=600_000);
        faults.range("http_body_timeout_ms", self.http_body_timeout_ms, 100..=600_000);
        faults.range("http_max_connections", self.http_max_connections, 1..=1_000_000);
        faults.range("limits.max_payload_bytes", self.limits.max_payload_bytes, 1..=LARGEST_PAYLOAD);
        faults.range("limits.max_signal_bytes", self.limits.max_signal_bytes, 1..=self.limits.max_payload_bytes);
        faults.range("limits.max_reason_bytes", self.limits.max_reason_bytes, 0..=65_536);
        faults.range("limits.max_body_bytes", self.limits.max_body_bytes, 1_024..=LARGEST_PAYLOAD * 2);
        faults.range("limits.max_request_bytes", self.limits.max_request_bytes, 16_777_216..=68_719_476_736);
        faults.range("workers.max_sessions", self.workers.max_sessions, 1..=1_000_000);
        faults.range("workers.max_credit", self.workers.max_credit, 1..=1_000_000);
        faults.range("workers.announce_interval_ms", self.workers.announce_interval_ms, 100..=60_000);
        faults.range("workers.announce_timeout_ms", self.workers.announce_timeout_ms, self.workers.announce_interval_ms..=600_000);
        faults.range("workers.report_interval_ms", self.workers.report_interval_ms, 100..=10_000);
    }
}

impl Config {
    /// The bounds of the edge.
    pub fn options(&self) -> Options {
        let millis = Duration::from_millis;
        Options {
            default_deadline: millis(self.default_deadline_ms),
            limits: Limits {
                max_payload_bytes: self.limits.max_payload_bytes,
                max_signal_bytes: self.limits.max_signal_bytes,
                max_reason_bytes: self.limits.max_reason_bytes,
            },
            max_body_bytes: self.limits.max_body_bytes,
            max_request_bytes: self.limits.max_request_bytes,
            body_timeout: millis(self.http_body_timeout_ms),
            max_sessions: self.workers.max_sessions,
            max_credit: self.workers.max_credit,
            announce_interval: millis(self.workers.announce_interval_ms),
            announce_timeout: millis(self.workers.announce_timeout_ms),
            report_interval: millis(self.workers.report_interval_ms),
            ..Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_need_a_database_only_and_are_the_defaults_of_the_edge() {
        let faults = harvest_runtime::config::load::<Config>(None, []).unwrap_err();
        assert_eq!(faults.list().len(), 1, "{faults}");
        let environment = [("HARVEST_DATABASE_URL".to_owned(), "postgres://localhost/harvest".to_owned())];
        let config = harvest_runtime::config::load::<Config>(None, environment).unwrap().settings;
        assert_eq!(format!("{:?}", config.options()), format!("{:?}", Options::default()));
    }
}
