//! The small HTTP listener of every process: `/health/live`, `/health/ready`, `/metrics`.

use crate::{Health, http};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long a scrape may take to end after the shutdown began.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The listener, bound and not yet serving.
#[derive(Debug)]
pub struct Ops {
    listener: TcpListener,
    address: SocketAddr,
    health: Health,
}

/// Binds the listener; port 0 takes a free one.
///
/// # Errors
/// When the address cannot be bound.
pub async fn bind(address: SocketAddr, health: Health) -> std::io::Result<Ops> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok(Ops { listener, address, health })
}

impl Ops {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the shutdown begins; a scrape in flight has a moment to end.
    ///
    /// # Errors
    /// None: a listener that cannot accept tries again.
    pub async fn run(self, shutdown: CancellationToken) -> std::io::Result<()> {
        let options = http::Options { drain_timeout: DRAIN_TIMEOUT, ..http::Options::default() };
        http::serve(self.listener, routes(self.health), options, shutdown).await;
        Ok(())
    }
}

/// The routes, for a process that has an HTTP listener of its own.
pub fn routes(health: Health) -> Router {
    Router::new().route("/health/live", get(live)).route("/health/ready", get(ready)).route("/metrics", get(metrics)).with_state(health)
}

async fn live() -> &'static str {
    "live\n"
}

async fn ready(State(health): State<Health>) -> (StatusCode, String) {
    match health.waiting_for() {
        Some(parts) if parts.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
        Some(parts) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", parts.join(", "))),
        None => (StatusCode::SERVICE_UNAVAILABLE, "not ready: starting\n".to_owned()),
    }
}

async fn metrics() -> axum::response::Response {
    match crate::metrics::render() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    #[tokio::test]
    async fn a_process_is_ready_when_all_its_parts_are_and_says_which_are_not() {
        let (health, stop) = (Health::new(), CancellationToken::new());
        let ops = bind("127.0.0.1:0".parse().unwrap(), health.clone()).await.unwrap();
        let address = ops.address();
        let server = crate::spawn("ops", ops.run(stop.clone()));

        assert!(fetch(address, "/health/live").await.starts_with("HTTP/1.1 200"));
        assert!(fetch(address, "/health/ready").await.starts_with("HTTP/1.1 503"));
        health.set("grpc", true);
        health.set("shards", false);
        assert!(fetch(address, "/health/ready").await.contains("not ready: shards"));
        health.set("shards", true);
        assert!(fetch(address, "/health/ready").await.starts_with("HTTP/1.1 200"));
        crate::metrics::TASK_PANICS.add(1, ["ops-test"]);
        assert!(fetch(address, "/metrics").await.contains("harvest_process_task_panics_total{task=\"ops-test\"} 1"));

        stop.cancel();
        server.await.unwrap().unwrap();
    }
}
