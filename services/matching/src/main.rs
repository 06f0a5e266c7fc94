//! The matching service as a process of its own.

use harvest_matching::config::Config;
use harvest_matching::{Deps, build};
use harvest_persistence::postgres::{PgOptions, PgStore};
use harvest_rpc::Network;
use harvest_runtime::boot::{self, Process};
use harvest_runtime::{SystemClock, SystemIds, ops};
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    boot::main("harvest-matching", run)
}

async fn run(config: Config, process: Process) -> anyhow::Result<()> {
    let token = process.shutdown.token();
    let store = PgStore::connect(&config.database_url, PgOptions { max_sessions: config.database_sessions, ..PgOptions::default() }).await?;
    let ops = ops::bind(config.http_listen, process.health.clone()).await?;
    let deps =
        Deps { directory: Arc::new(store), network: Network::tcp(), clock: Arc::new(SystemClock::new()), ids: Arc::new(SystemIds), health: process.health };
    let matching = build(&config, deps).await?;
    let ops = harvest_runtime::spawn_owned("ops", ops.run(token.clone()));
    matching.run(token).await?;
    ops.await??;
    Ok(())
}
