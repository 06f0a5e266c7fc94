//! How processes reach each other: TCP, or whatever stands for it in a simulation or within one process.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::Stream;
use tonic::codegen::http::Uri;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint};

/// Both directions of one connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// What a [`Transport`] is doing.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A network other than TCP.
pub trait Transport: Send + Sync + 'static {
    /// Listens on an address; port 0 takes a free one.
    fn bind(&self, listen: SocketAddr) -> Doing<'_, Box<dyn Listener>>;

    /// Connects to a process, by the host and the port of its address.
    fn connect(&self, host: &str, port: u16) -> Doing<'static, Box<dyn Duplex>>;
}

/// Where a process takes connections.
pub trait Listener: Send + Unpin + 'static {
    /// The address that is bound, with the real port.
    ///
    /// # Errors
    /// When the listener cannot say.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The next connection. An error concerns one connection: the next poll goes on.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Duplex>>>;
}

/// A network: TCP unless made [`Network::over`] another transport. Cheap to clone.
#[derive(Clone, Default)]
pub struct Network {
    transport: Option<Arc<dyn Transport>>,
    /// Whether it listens on TCP whatever it connects over.
    listens_on_tcp: bool,
}

impl Network {
    /// The machine's TCP.
    pub fn tcp() -> Self {
        Self::default()
    }

    /// Another transport.
    pub fn over(transport: Arc<dyn Transport>) -> Self {
        Self { transport: Some(transport), listens_on_tcp: false }
    }

    /// The same way to others, while they come by TCP.
    #[must_use]
    pub fn listening_on_tcp(self) -> Self {
        Self { listens_on_tcp: true, ..self }
    }

    /// Listens on an address; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(&self, listen: SocketAddr) -> io::Result<Bound> {
        match self.transport.as_ref().filter(|_| !self.listens_on_tcp) {
            None => Ok(Bound::Tcp(TcpListener::bind(listen).await?)),
            Some(transport) => Ok(Bound::Other(transport.bind(listen).await?)),
        }
    }

    /// A channel that connects on its first call and again whenever the connection is lost. Must be called within a tokio runtime.
    pub fn channel(&self, endpoint: &Endpoint) -> Channel {
        match &self.transport {
            None => endpoint.connect_lazy(),
            Some(transport) => endpoint.connect_with_connector_lazy(Connector(transport.clone())),
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.transport.is_some() { "Network(other)" } else { "Network(tcp)" })
    }
}

/// A bound listener.
pub enum Bound {
    /// Of TCP.
    Tcp(TcpListener),
    /// Of another transport.
    Other(Box<dyn Listener>),
}

impl Bound {
    /// The address that is bound, with the real port.
    ///
    /// # Errors
    /// When the listener cannot say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Other(listener) => listener.local_addr(),
        }
    }

    /// What it is, whichever it is.
    pub(crate) fn into_listener(self) -> Box<dyn Listener> {
        match self {
            Self::Tcp(listener) => Box::new(listener),
            Self::Other(listener) => listener,
        }
    }
}

impl Listener for TcpListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Box<dyn Duplex>>> {
        let (stream, _) = ready!(Self::poll_accept(self, context))?;
        stream.set_nodelay(true)?;
        Poll::Ready(Ok(Box::new(stream)))
    }
}

/// Connects channels.
#[derive(Clone)]
struct Connector(Arc<dyn Transport>);

impl tonic::codegen::Service<Uri> for Connector {
    type Response = hyper_util::rt::TokioIo<Box<dyn Duplex>>;
    type Error = io::Error;
    type Future = Doing<'static, Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let connecting = address.host().map(|host| self.0.connect(host, address.port_u16().unwrap_or(80)));
        Box::pin(async move {
            let connecting = connecting.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("the address {address} has no host")))?;
            Ok(hyper_util::rt::TokioIo::new(connecting.await?))
        })
    }
}

/// A connection as a gRPC server takes it, and its place among them.
pub(crate) struct Accepted {
    connection: Box<dyn Duplex>,
    _place: OwnedSemaphorePermit,
}

impl Connected for Accepted {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut tokio::io::ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}

/// The connections of a listener, so many at a time. One more is closed at once: its client sees a line that broke, and tries again.
pub(crate) struct Incoming {
    listener: Box<dyn Listener>,
    places: Arc<Semaphore>,
    max_connections: usize,
    /// Whether the last one had no place: a flood is logged once.
    full: bool,
}

impl Incoming {
    pub(crate) fn new(bound: Bound, max_connections: usize) -> Self {
        let places = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        Self { listener: bound.into_listener(), places, max_connections, full: false }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Accepted>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let connection = match ready!(self.listener.poll_accept(context)) {
                Ok(connection) => connection,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            if let Ok(place) = self.places.clone().try_acquire_owned() {
                self.full = false;
                return Poll::Ready(Some(Ok(Accepted { connection, _place: place })));
            }
            if !self.full {
                tracing::warn!(grpc_max_connections = self.max_connections, "too many connections: further ones are closed");
            }
            self.full = true;
        }
    }
}
