//! The bank as a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use harvest_examples::bank::Bank;
use harvest_examples::counter::routes;
use harvest_runtime::{Shutdown, SystemClock};

/// The bank of the order example.
#[derive(Parser)]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:7300")]
    listen: SocketAddr,
    /// The file that every call is appended to.
    #[arg(long)]
    file: PathBuf,
    /// How long a call takes, in ms: long enough for a crash to hit calls in flight.
    #[arg(long, default_value_t = 150)]
    latency_ms: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    harvest_runtime::telemetry::init();
    let arguments = Arguments::parse();
    let bank = Bank::open(&arguments.file).with_context(|| format!("opening {}", arguments.file.display()))?;
    let routes = routes(bank, Duration::from_millis(arguments.latency_ms), Arc::new(SystemClock::new()));
    let listener = tokio::net::TcpListener::bind(arguments.listen).await.with_context(|| format!("listening on {}", arguments.listen))?;
    let shutdown = Shutdown::on_signals()?;
    tracing::info!(address = %listener.local_addr()?, "the bank is open");
    axum::serve(listener, routes).with_graceful_shutdown(async move { shutdown.begun().await }).await?;
    Ok(())
}
