//! HTTP/1.1 on a listener, bounded in time and number: heads of requests must come, a shutdown ends, and one connection too many is told so.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long connections without a request may take to close, and last answers to leave, after the last request was answered.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The name of the bound of connections.
const MAX_CONNECTIONS: &str = "http_max_connections";
/// Most connections that are being told that they are too many; more are closed without a word.
const MAX_REFUSALS: usize = 256;
/// How long that may take.
const REFUSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of its request that are read meanwhile: a connection that is closed with bytes unread loses its answer.
const UNREAD: u64 = 64 * 1024;

/// Bounds of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long a connection may take to send the head of a request; idle ones, between two requests, are closed after it too.
    pub header_timeout: Duration,
    /// How long requests in flight may take to end after the shutdown began.
    pub drain_timeout: Duration,
    /// Most connections at a time; further ones are answered 503 and closed.
    pub max_connections: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { header_timeout: Duration::from_secs(30), drain_timeout: Duration::from_secs(20), max_connections: 4_096 }
    }
}

/// Serves until `shutdown`, then takes no new connection, waits for the requests in flight, at most the drain timeout, and closes what is
/// left: no client can hold a process. Bodies have no bound here: who reads one bounds it.
pub async fn serve(mut listener: impl Listener, routes: Router, options: Options, shutdown: CancellationToken) {
    let (mut connections, mut refusals, requests) = (JoinSet::new(), JoinSet::new(), TaskTracker::new());
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(options.header_timeout);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            (stream, _) = Listener::accept(&mut listener) => {
                if connections.len() < options.max_connections {
                    connections.spawn(connection(stream, routes.clone(), builder.clone(), requests.clone(), shutdown.clone()));
                } else {
                    crate::metrics::OVERLOADED.add(1, [MAX_CONNECTIONS]);
                    if refusals.len() < MAX_REFUSALS {
                        refusals.spawn(refuse(stream));
                    }
                }
            }
            Some(ended) = connections.join_next() => look(ended),
            Some(ended) = refusals.join_next() => look(ended),
        }
    }
    drop(listener);
    requests.close();
    if tokio::time::timeout(options.drain_timeout, requests.wait()).await.is_err() {
        tracing::warn!(requests = requests.len(), timeout_ms = options.drain_timeout.as_millis(), "HTTP requests in flight did not end in time");
        return;
    }
    let closed = tokio::time::timeout(CLOSE_TIMEOUT, async {
        while let Some(ended) = connections.join_next().await {
            look(ended);
        }
    });
    if closed.await.is_err() {
        tracing::debug!(connections = connections.len(), "HTTP connections without a request are cut");
    }
}

/// One connection, to its end; once the shutdown has begun it takes no further request.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    routes: Router,
    builder: http1::Builder,
    requests: TaskTracker,
    shutdown: CancellationToken,
) {
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |request: Request<Incoming>| {
        let (in_flight, answer) = (requests.token(), routes.call(request.map(Body::new)));
        async move {
            let answer = answer.await;
            drop(in_flight);
            answer
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection broke");
    }
}

/// Answers a connection that is one too many, whatever it asks, and closes it.
async fn refuse(stream: impl AsyncRead + AsyncWrite + Unpin + Send) {
    let body = format!("{{\"error\":\"this process has too many connections\",\"limit\":\"{MAX_CONNECTIONS}\",\"reason\":\"OVERLOADED\"}}");
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let answering = async {
        let (reader, mut writer) = tokio::io::split(stream);
        writer.write_all(head.as_bytes()).await?;
        writer.write_all(body.as_bytes()).await?;
        writer.shutdown().await?;
        tokio::io::copy(&mut reader.take(UNREAD), &mut tokio::io::sink()).await
    };
    match tokio::time::timeout(REFUSE_TIMEOUT, answering).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::trace!(%error, "a connection that was one too many broke"),
        Err(_) => tracing::trace!("a connection that was one too many did not close in time"),
    }
}

fn look(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a request's handler panicked");
        crate::metrics::TASK_PANICS.add(1, ["http-connection"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::post;
    use std::net::SocketAddr;
    use tokio::net::{TcpListener, TcpStream};

    const SHORT: Duration = Duration::from_millis(50);

    async fn start(options: Options) -> (SocketAddr, CancellationToken, crate::OwnedTask<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let routes = Router::new().route("/", post(|body: String| async move { body }));
        (address, stop.clone(), crate::spawn_owned("http", serve(listener, routes, options, stop)))
    }

    async fn connect(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut reply = String::new();
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut reply)).await.expect("the connection ends").unwrap();
        reply
    }

    #[tokio::test]
    async fn a_connection_that_sends_half_a_head_is_closed() {
        let (address, _stop, _server) = start(Options { header_timeout: SHORT, ..Options::default() }).await;
        let reply = rest(connect(address, "POST / HTTP/1.1\r\nHost:").await).await;
        assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 408"), "{reply}");
        assert_eq!(rest(connect(address, "").await).await, "");
    }

    #[tokio::test]
    async fn one_connection_too_many_is_told_when_to_come_again_and_finds_a_place_once_one_is_free() {
        let (address, _stop, _server) = start(Options { max_connections: 1, ..Options::default() }).await;
        let request = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
        // Its request is answered, so that it has been taken.
        let mut first = connect(address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc").await;
        let mut head = [0; 12];
        first.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        let refused = rest(connect(address, request).await).await;
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("Retry-After: 1") && refused.contains("OVERLOADED"), "{refused}");
        drop(first);
        let found = tokio::time::timeout(Duration::from_secs(20), async { while !rest(connect(address, request).await).await.starts_with("HTTP/1.1 200") {} });
        found.await.expect("there is a place");
    }

    #[tokio::test]
    async fn a_client_that_sent_half_a_head_or_half_a_body_does_not_hold_the_shutdown() {
        let (address, stop, server) = start(Options { drain_timeout: SHORT, ..Options::default() }).await;
        let half_a_body = connect(address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc").await;
        let half_a_head = connect(address, "POST / HTTP/1.1\r\nHost:").await;
        let idle = connect(address, "").await;
        let whole = connect(address, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc").await;
        assert!(rest(whole).await.ends_with("\r\n\r\nabc"));
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), server).await.expect("the server ends").unwrap();
        for stream in [half_a_body, half_a_head, idle] {
            drop(stream);
        }
    }
}
