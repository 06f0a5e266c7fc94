//! Configuration of the matching service.

use crate::dispatch::Bounds;
use harvest_runtime::config::{Faults, Settings};
use serde::Deserialize;
use std::net::SocketAddr;

/// All keys; `deploy/config/matching.default.toml` documents them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the TOML is the documentation
pub struct Config {
    pub grpc_listen: SocketAddr,
    pub http_listen: SocketAddr,
    pub advertise_address: String,
    pub database_url: String,
    pub database_sessions: usize,
    pub offers_per_queue: u32,
    pub max_offers: usize,
    pub max_takes: usize,
    pub max_task_bytes: usize,
    pub max_sessions: usize,
}

impl Settings for Config {
    const DEFAULTS: &'static str = include_str!("../../../deploy/config/matching.default.toml");

    fn check(&self, faults: &mut Faults) {
        faults.postgres_url("database_url", &self.database_url);
        faults.range("database_sessions", self.database_sessions, 1..=1_000);
        faults.range("offers_per_queue", self.offers_per_queue, 1..=1_000_000);
        faults.range("max_offers", self.max_offers, 1_000..=100_000_000);
        faults.range("max_takes", self.max_takes, 1..=100_000);
        faults.range("max_task_bytes", self.max_task_bytes, 16_777_216..=4_294_967_295);
        faults.range("max_sessions", self.max_sessions, 1..=1_000_000);
    }
}

impl Config {
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            offers_per_queue: usize::try_from(self.offers_per_queue).unwrap_or(usize::MAX),
            max_offers: self.max_offers,
            max_takes: self.max_takes,
            max_task_bytes: self.max_task_bytes,
            max_sessions: self.max_sessions,
        }
    }
}
