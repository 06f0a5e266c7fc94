//! The bank as a process: `POST /calls/{action}` carries out a call, `GET /health` answers when it is up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use harvest_examples::bank::{Action, Answer, Bank, Call};
use harvest_runtime::{Clock, Shutdown, SystemClock};

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

#[derive(Clone)]
struct Counter {
    bank: Arc<Mutex<Bank>>,
    latency: Duration,
    clock: SystemClock,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    harvest_runtime::telemetry::init();
    let arguments = Arguments::parse();
    let bank = Bank::open(&arguments.file).with_context(|| format!("opening {}", arguments.file.display()))?;
    let counter = Counter { bank: Arc::new(Mutex::new(bank)), latency: Duration::from_millis(arguments.latency_ms), clock: SystemClock::new() };
    let routes = Router::new().route("/health", get(|| async { "ok" })).route("/calls/{action}", post(serve)).with_state(counter);
    let listener = tokio::net::TcpListener::bind(arguments.listen).await.with_context(|| format!("listening on {}", arguments.listen))?;
    let shutdown = Shutdown::on_signals()?;
    tracing::info!(address = %listener.local_addr()?, "the bank is open");
    axum::serve(listener, routes).with_graceful_shutdown(async move { shutdown.begun().await }).await?;
    Ok(())
}

/// Half of the time passes before the call is on disk and half after: a caller that dies may or may not have been served.
async fn serve(State(counter): State<Counter>, Path(action): Path<Action>, Json(call): Json<Call>) -> Result<Json<Answer>, (StatusCode, String)> {
    counter.clock.sleep(counter.latency / 2).await;
    let bank = counter.bank.clone();
    let written = tokio::task::spawn_blocking(move || {
        // A poisoned lock means that a write panicked half-way: refuse to go on.
        bank.lock().map_err(|_| "the bank is out of order".to_owned())?.call(action, call).map_err(|error| error.to_string())
    });
    let answer = written.await.unwrap_or_else(|error| Err(error.to_string())).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error))?;
    counter.clock.sleep(counter.latency / 2).await;
    Ok(Json(answer))
}
