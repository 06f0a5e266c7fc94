//! A gRPC server: bound before it serves, with health and reflection, drained on shutdown.
#![expect(clippy::disallowed_methods, reason = "deadlines and pauses of calls are counted on the runtime's own clock, which tests can stop")]

use crate::network::{Bound, Incoming, Network};
use crate::request_bytes::{CALL_BYTES, RequestBytes, TakenBytes};
use http_body::Frame;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Bytes, Service, http};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

/// The largest gRPC message, both ways. Pass it to `max_decoding_message_size` and `max_encoding_message_size` of generated servers and clients.
pub const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;
/// How long calls in flight may take to end after shutdown was asked for.
pub const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Most connections of a server at a time.
pub const DEFAULT_MAX_CONNECTIONS: usize = 16_384;
/// How long connections may take to close after the last call has ended: those that are idle or half open are not waited for longer.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Why a server did not come up or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port could not be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The server ended by itself.
    #[error("gRPC server: {0}")]
    Serve(#[from] tonic::transport::Error),
    /// The reflection service could not be built.
    #[error("gRPC reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A bound server that does not serve yet.
pub struct Server {
    bound: Bound,
    address: SocketAddr,
    routes: Routes,
    health: HealthReporter,
    /// Calls in flight, those of health and reflection aside.
    calls: TaskTracker,
    drain_timeout: Duration,
    bounds: Option<Bounds>,
    ready: Option<watch::Receiver<bool>>,
    max_connection_age: Option<Duration>,
    max_connections: usize,
}

/// How many bytes of requests there may be, and which methods are streams that stay.
#[derive(Clone)]
struct Bounds {
    bytes: RequestBytes,
    streams: &'static [&'static str],
}

impl Server {
    /// Binds a port of TCP (0 = any free one) and adds health and reflection.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub async fn bind(listen: SocketAddr) -> Result<Self, ServeError> {
        Self::bind_on(&Network::tcp(), listen).await
    }

    /// The same on any network.
    ///
    /// # Errors
    /// [`ServeError::Bind`].
    pub async fn bind_on(network: &Network, listen: SocketAddr) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Bind { address: listen, source };
        let bound = network.bind(listen).await.map_err(failed)?;
        let address = bound.local_addr().map_err(failed)?;
        let (health, health_service) = tonic_health::server::health_reporter();
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(harvest_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let routes = Routes::new(health_service).add_service(reflection);
        Ok(Self {
            bound,
            address,
            routes,
            health,
            calls: TaskTracker::new(),
            drain_timeout: DEFAULT_DRAIN_TIMEOUT,
            bounds: None,
            ready: None,
            max_connection_age: None,
            max_connections: DEFAULT_MAX_CONNECTIONS,
        })
    }

    /// Adds a service.
    #[must_use]
    pub fn add_service<S>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        self.routes = self.routes.add_service(Counted { service, calls: self.calls.clone(), bounds: self.bounds.clone() });
        self
    }

    /// Bounds the bytes of requests in flight, of the services that are added from now on: what does not fit is refused as
    /// [`crate::Reason::Overloaded`]. `streams` are the paths of methods whose requests are streams: what comes by them is not counted.
    #[must_use]
    pub fn bound_requests(mut self, bytes: RequestBytes, streams: &'static [&'static str]) -> Self {
        self.bounds = Some(Bounds { bytes, streams });
        self
    }

    /// How long calls in flight may take to end after shutdown; [`DEFAULT_DRAIN_TIMEOUT`] unless set.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// How old a connection may become before its client is told to make a new one; calls and streams that it carries then end as ever. None
    /// unless set.
    #[must_use]
    pub fn max_connection_age(mut self, age: Option<Duration>) -> Self {
        self.max_connection_age = age;
        self
    }

    /// Most connections at a time; one more is closed at once. [`DEFAULT_MAX_CONNECTIONS`] unless set.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Has gRPC health checks of the empty service name say whether the process is ready, as it changes, until shutdown.
    #[must_use]
    pub fn follow(mut self, ready: watch::Receiver<bool>) -> Self {
        self.ready = Some(ready);
        self
    }

    /// The address that is bound, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What gRPC health checks are told. The empty service name is serving from the start.
    pub fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Serves until `shutdown`, then refuses new calls and waits for those in flight, at most the drain timeout; connections without one are
    /// not waited for. Long streams must end themselves when they see the same token.
    ///
    /// # Errors
    /// [`ServeError::Serve`] when the server ended by itself.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let Self { bound, routes, health, calls, drain_timeout, ready, max_connection_age, max_connections, .. } = self;
        let stop = shutdown.clone();
        let stopping = async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tell(&health, ready) => {}
            }
            health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        };
        let builder = match max_connection_age {
            Some(age) => tonic::transport::Server::builder().max_connection_age(age),
            None => tonic::transport::Server::builder(),
        };
        let router = builder
            .http2_keepalive_interval(Some(Duration::from_secs(10)))
            .http2_keepalive_timeout(Some(Duration::from_secs(10)))
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20)
            .add_routes(routes);
        let serving = router.serve_with_incoming_shutdown(Incoming::new(bound, max_connections), stopping);
        let drained = async {
            shutdown.cancelled().await;
            calls.close();
            match tokio::time::timeout(drain_timeout, calls.wait()).await {
                Ok(()) => tokio::time::sleep(CLOSE_TIMEOUT).await,
                Err(_) => tracing::warn!(calls = calls.len(), timeout_ms = drain_timeout.as_millis(), "calls in flight did not end in time"),
            }
        };
        tokio::select! {
            ended = serving => ended.map_err(ServeError::from),
            () = drained => Ok(()),
        }
    }
}

/// Tells health checks whether the process is ready. Has no end.
async fn tell(health: &HealthReporter, ready: Option<watch::Receiver<bool>>) {
    if let Some(mut ready) = ready {
        loop {
            let status = if *ready.borrow_and_update() { tonic_health::ServingStatus::Serving } else { tonic_health::ServingStatus::NotServing };
            health.set_service_status("", status).await;
            if ready.changed().await.is_err() {
                break; // nobody changes it any more
            }
        }
    }
    std::future::pending().await
}

/// A service whose calls are counted until their answers have left.
#[derive(Clone)]
struct Counted<S> {
    service: S,
    calls: TaskTracker,
    bounds: Option<Bounds>,
}

impl<S: NamedService> NamedService for Counted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Counted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<Self::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let in_flight = self.calls.token();
        let bounds = self.bounds.as_ref().filter(|bounds| !bounds.streams.contains(&request.uri().path()));
        let taken = match bounds.map(|bounds| bounds.bytes.take(CALL_BYTES)).transpose() {
            Ok(taken) => taken.map(|taken| Arc::new(Mutex::new(taken))),
            Err(refused) => return Box::pin(async move { Ok(Status::from(refused).into_http()) }),
        };
        let request = match &taken {
            Some(taken) => request.map(|body| Body::new(MeasuredBody { body, taken: taken.clone() })),
            None => request,
        };
        let answer = self.service.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Body::new(CountedBody { body, _in_flight: in_flight, _taken: taken }))) })
    }
}

/// The body of an answer, whose call is in flight until it is dropped.
struct CountedBody {
    body: Body,
    _in_flight: TaskTrackerToken,
    /// What its request took is given back with it.
    _taken: Option<Arc<Mutex<TakenBytes>>>,
}

/// The body of a request, whose bytes are counted as they come.
struct MeasuredBody {
    body: Body,
    taken: Arc<Mutex<TakenBytes>>,
}

impl http_body::Body for MeasuredBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        let grown = self.taken.lock().unwrap_or_else(PoisonError::into_inner).grow(u64::try_from(bytes).unwrap_or(u64::MAX));
        Poll::Ready(match grown {
            Ok(()) => frame,
            Err(refused) => Some(Err(refused.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Channels;
    use tokio::io::AsyncReadExt as _;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    #[tokio::test]
    async fn a_bound_server_answers_health_checks_until_shutdown() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = format!("http://{}", server.address());
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(server.serve(shutdown.clone()));
        let channels = Channels::default();
        let mut client = HealthClient::new(channels.get(&address).unwrap());
        let reply = client.check(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
        assert_eq!(reply.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
        shutdown.cancel();
        serving.await.unwrap().unwrap();
        drop(client);
        channels.forget(&address);
        let mut again = HealthClient::new(channels.get(&address).unwrap());
        let refused = again.check(HealthCheckRequest { service: String::new() }).await.unwrap_err();
        assert_eq!(crate::Error::from(refused).reason, crate::Reason::Unavailable);
    }

    #[tokio::test]
    async fn health_checks_are_told_whether_the_process_is_ready() {
        let (ready, is_ready) = watch::channel(false);
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().follow(is_ready);
        let (address, shutdown) = (format!("http://{}", server.address()), CancellationToken::new());
        let serving = tokio::spawn(server.serve(shutdown.clone()));
        let mut client = HealthClient::new(Channels::default().get(&address).unwrap());
        let mut told = client.watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
        for expected in [false, true, false, true] {
            ready.send_replace(expected);
            let wanted = if expected { "Serving" } else { "NotServing" };
            while format!("{:?}", told.message().await.unwrap().unwrap().status()) != wanted {}
        }
        shutdown.cancel();
        while format!("{:?}", told.message().await.unwrap().unwrap().status()) != "NotServing" {}
        drop((told, client));
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_does_not_hold_the_shutdown() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().drain_timeout(Duration::from_secs(600));
        let (address, shutdown) = (server.address(), CancellationToken::new());
        let serving = tokio::spawn(server.serve(shutdown.clone()));
        let silent = tokio::net::TcpStream::connect(address).await.unwrap();
        // Answered after the silent connection was accepted.
        let mut client = HealthClient::new(Channels::default().get(&format!("http://{address}")).unwrap());
        client.check(HealthCheckRequest { service: String::new() }).await.unwrap();
        shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(20), serving).await.expect("the server ends").unwrap().unwrap();
        drop((silent, client));
    }

    #[tokio::test]
    async fn connections_that_have_become_old_are_left_for_new_ones_without_a_failed_call() {
        let age = Some(Duration::from_millis(100));
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().max_connection_age(age);
        let (address, shutdown) = (format!("http://{}", server.address()), CancellationToken::new());
        let serving = tokio::spawn(server.serve(shutdown.clone()));
        let channel = Channels::default().get(&address).unwrap();
        // A stream that stays longer than its connection may carry it to its end.
        let mut stream = HealthClient::new(channel.clone()).watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
        let (begun, mut failed, mut calls) = (tokio::time::Instant::now(), 0, 0);
        while begun.elapsed() < Duration::from_secs(3) {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
            let mut tries = 0;
            let checked = crate::client::retry_until(deadline, || {
                tries += 1;
                let mut client = HealthClient::new(channel.clone());
                async move { client.check(HealthCheckRequest { service: String::new() }).await.map_err(crate::Error::from) }
            });
            checked.await.unwrap();
            assert!(tries <= 2, "a call took {tries} tries");
            failed += tries - 1;
            calls += 1;
        }
        assert!(calls > 100, "{calls} calls");
        assert!(failed <= 60, "{failed} of {calls} calls needed a second try");
        shutdown.cancel();
        drop(stream);
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_is_one_too_many_is_closed_and_has_a_place_when_another_has_gone() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().max_connections(2);
        let (address, shutdown) = (server.address(), CancellationToken::new());
        let serving = tokio::spawn(server.serve(shutdown.clone()));
        let channel = Channels::default().get(&format!("http://{address}")).unwrap();
        let mut client = HealthClient::new(channel);
        client.check(HealthCheckRequest { service: String::new() }).await.unwrap();
        let second = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut third = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut byte = [0];
        // Accepted in order, so the third is the one without a place; a server speaks first, with its settings.
        assert_eq!(third.read(&mut byte).await.unwrap_or(0), 0, "closed without a word");
        client.check(HealthCheckRequest { service: String::new() }).await.unwrap();
        drop(second);
        let found = async {
            loop {
                let mut fourth = tokio::net::TcpStream::connect(address).await.unwrap();
                if fourth.read(&mut byte).await.unwrap_or(0) > 0 {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), found).await.expect("a place is free again");
        shutdown.cancel();
        drop(client);
        serving.await.unwrap().unwrap();
    }
}
