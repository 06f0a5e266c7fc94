//! The frontend as a process of its own.

use harvest_fleet_config::RedisBus;
use harvest_frontend::{Config, Deps, build};
use harvest_persistence::postgres::{PgOptions, PgStore};
use harvest_rpc::Network;
use harvest_runtime::boot::{self, Process};
use harvest_runtime::{SystemClock, SystemIds};
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    boot::main("harvest-frontend", run)
}

async fn run(config: Config, process: Process) -> anyhow::Result<()> {
    let token = process.shutdown.token();
    let store = Arc::new(PgStore::connect(&config.database_url, PgOptions { max_sessions: config.database_sessions, ..PgOptions::default() }).await?);
    let clock = Arc::new(SystemClock::new());
    let bus = Arc::new(RedisBus::start(&config.redis_url, &config.fleet, clock.clone(), token.clone())?);
    let deps = Deps { store: store.clone(), directory: store, bus, network: Network::tcp(), clock, ids: Arc::new(SystemIds), health: process.health };
    build(&config, deps).await?.run(token).await?;
    Ok(())
}
