//! The timer scanner as a process of its own.

use harvest_persistence::postgres::{PgOptions, PgStore};
use harvest_rpc::Network;
use harvest_runtime::boot::{self, Process};
use harvest_runtime::{SystemClock, SystemIds, ops};
use harvest_timer_scanner::config::Config;
use harvest_timer_scanner::{Deps, build};
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    boot::main("harvest-timer-scanner", run)
}

async fn run(config: Config, process: Process) -> anyhow::Result<()> {
    let token = process.shutdown.token();
    let store = Arc::new(PgStore::connect(&config.database_url, PgOptions { max_sessions: config.database_sessions, ..PgOptions::default() }).await?);
    let ops = ops::bind(config.http_listen, process.health.clone()).await?;
    let (clock, ids) = (Arc::new(SystemClock::new()), Arc::new(SystemIds));
    let deps = Deps { store: store.clone(), directory: store, network: Network::tcp(), clock, ids, health: process.health };
    let scanner = build(&config, deps).await?;
    let ops = harvest_runtime::spawn_owned("ops", ops.run(token.clone()));
    scanner.run(token).await?;
    ops.await??;
    Ok(())
}
