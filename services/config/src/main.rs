//! The config service as a process of its own.

use harvest_config::config::Config;
use harvest_config::{Deps, build};
use harvest_fleet_config::RedisBus;
use harvest_persistence::postgres::{PgOptions, PgStore};
use harvest_rpc::Network;
use harvest_runtime::boot::{self, Process};
use harvest_runtime::{SystemClock, SystemIds, ops};
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    boot::main("harvest-config", run)
}

async fn run(config: Config, process: Process) -> anyhow::Result<()> {
    let token = process.shutdown.token();
    let store = Arc::new(PgStore::connect(&config.database_url, PgOptions { max_sessions: config.database_sessions, ..PgOptions::default() }).await?);
    let clock = Arc::new(SystemClock::new());
    let bus = Arc::new(RedisBus::start(&config.redis_url, &config.fleet, clock.clone(), token.clone())?);
    let ops = ops::bind(config.http_listen, process.health.clone()).await?;
    let deps = Deps { store: store.clone(), directory: store, bus, network: Network::tcp(), clock, ids: Arc::new(SystemIds), health: process.health };
    let service = build(&config, deps).await?;
    let ops = harvest_runtime::spawn_owned("ops", ops.run(token.clone()));
    service.run(token).await?;
    ops.await??;
    Ok(())
}
