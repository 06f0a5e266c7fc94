//! Connections to the frontends: several addresses, the next one when one fails.

use harvest_rpc::{Network, Reason};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

/// A connection that adds the caller's token.
pub(crate) type Connection = InterceptedService<Channel, Authorization>;

/// Most bytes of one message from a server: a page of history and its envelope fit.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// The longest one try of a unary call may take.
pub(crate) const TRY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why addresses were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No address.
    #[error("addresses: at least one frontend address is needed, for example http://127.0.0.1:7233")]
    None,
    /// Not a URL that can be connected to.
    #[error("address {address:?} is not usable: {message}")]
    Bad {
        /// The address.
        address: String,
        /// What is wrong.
        message: String,
    },
    /// A token that cannot be a header.
    #[error("the token holds characters that a header cannot have")]
    Token,
}

/// Adds `authorization: Bearer ..` to calls.
#[derive(Clone, Default)]
pub(crate) struct Authorization {
    header: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Authorization {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.header {
            request.metadata_mut().insert("authorization", header.clone());
        }
        Ok(request)
    }
}

/// All frontends. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Channels {
    list: Arc<[Connection]>,
    current: Arc<AtomicUsize>,
}

impl Channels {
    /// Connects on first use. Must be called within a tokio runtime.
    pub(crate) fn new(network: &Network, addresses: &[String], token: Option<&str>) -> Result<Self, AddressError> {
        if addresses.is_empty() {
            return Err(AddressError::None);
        }
        let header = token.map(|token| format!("Bearer {token}").parse()).transpose().map_err(|_| AddressError::Token)?;
        let authorization = Authorization { header };
        let connect = |address: &String| endpoint(address).map(|endpoint| InterceptedService::new(network.channel(&endpoint), authorization.clone()));
        let list: Vec<Connection> = addresses.iter().map(connect).collect::<Result<_, _>>()?;
        Ok(Self { list: list.into(), current: Arc::new(AtomicUsize::new(0)) })
    }

    /// The connection in use, with its number.
    pub(crate) fn current(&self) -> (usize, Connection) {
        let index = self.current.load(Ordering::Relaxed) % self.list.len();
        (index, self.list[index].clone())
    }

    /// The connection `failed` did not work: the next call takes another, unless somebody has changed it already.
    pub(crate) fn rotate(&self, failed: usize) {
        let next = (failed + 1) % self.list.len();
        let seen = self.current.load(Ordering::Relaxed);
        if seen % self.list.len() == failed {
            // Losing the race means that somebody else has rotated.
            let _raced = self.current.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Calls until it works, fails for good or `deadline` has passed. Only for calls that may be repeated.
    pub(crate) async fn retry<T, F>(&self, deadline: Instant, try_timeout: Option<Duration>, call: impl FnMut(Connection) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.retry_from(None, deadline, try_timeout, call).await
    }

    /// The same; the first try goes over this connection, whichever is in use.
    pub(crate) async fn retry_from<T, F>(
        &self,
        mut first: Option<(usize, Connection)>,
        deadline: Instant,
        try_timeout: Option<Duration>,
        mut call: impl FnMut(Connection) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut pause = Duration::from_millis(50);
        loop {
            let (index, connection) = first.take().unwrap_or_else(|| self.current());
            let give_up = deadline.min(Instant::now() + try_timeout.unwrap_or(TRY_TIMEOUT));
            let status = match tokio::time::timeout_at(give_up, call(connection)).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(status)) if !is_transient(&status) => return Err(status),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("no answer in time"),
            };
            let overloaded = reason(&status) == Some(Reason::Overloaded);
            if !overloaded {
                self.rotate(index);
            }
            // Who has too much to do says when to come again; it is the same whichever frontend is asked.
            let asked = retry_after(&status).filter(|_| overloaded).unwrap_or_default();
            let pause_now = pause.max(asked);
            if Instant::now() + pause_now >= deadline {
                return Err(status);
            }
            tracing::debug!(%status, "a call failed and is tried again");
            tokio::time::sleep(pause_now).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }
}

/// Whether the same call may work a little later: as the server says, or, for a status that no server of ours made, by its code.
pub(crate) fn is_transient(status: &Status) -> bool {
    match reason(status) {
        Some(reason) => reason.retryable() || matches!(reason, Reason::DeadlineExceeded | Reason::Cancelled | Reason::Internal),
        None => {
            matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled | Code::ResourceExhausted | Code::Internal)
        }
    }
}

/// The reason that a server of ours gave.
pub(crate) fn reason(status: &Status) -> Option<Reason> {
    Reason::parse(&status.get_details_error_info()?.reason)
}

/// When the server wants to be asked again.
fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// Whether the answer to a task came too late: somebody else has it, or its run has ended.
pub(crate) fn is_stale(status: &Status) -> bool {
    match reason(status) {
        Some(reason) => matches!(reason, Reason::StaleTask | Reason::WorkflowClosed | Reason::WorkflowNotFound),
        None => matches!(status.code(), Code::NotFound | Code::FailedPrecondition),
    }
}

fn endpoint(address: &str) -> Result<Endpoint, AddressError> {
    let bad = |error: &dyn std::error::Error| AddressError::Bad { address: address.to_owned(), message: error.to_string() };
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|error| bad(&error))?;
    let endpoint = endpoint
        .connect_timeout(Duration::from_secs(3))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(4))
        .keep_alive_while_idle(true);
    if address.starts_with("https://") {
        return endpoint.tls_config(ClientTlsConfig::new().with_enabled_roots()).map_err(|error| bad(&error));
    }
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvest_rpc::Error;
    use std::cell::Cell;

    fn channels() -> Channels {
        let addresses = ["http://127.0.0.1:1", "http://127.0.0.1:2"].map(str::to_owned);
        Channels::new(&harvest_rpc::Network::tcp(), &addresses, None).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_overloaded_fleet_is_asked_again_when_it_said_and_by_the_same_frontend() {
        let (channels, tries, began) = (channels(), Cell::new(0_u32), Instant::now());
        let answer = channels.retry(began + Duration::from_secs(60), None, |_| {
            tries.set(tries.get() + 1);
            let enough = tries.get() == 3;
            let busy = Error { retry_after: Some(Duration::from_secs(7)), ..Error::new(Reason::Overloaded, "busy") };
            async move { if enough { Ok(7) } else { Err(Status::from(busy)) } }
        });
        assert_eq!(answer.await.unwrap(), 7);
        assert_eq!((tries.get(), began.elapsed().as_secs(), channels.current().0), (3, 14, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_frontend_that_cannot_be_reached_is_left_for_the_next() {
        let (channels, tries) = (channels(), Cell::new(0_u32));
        let answer = channels.retry(Instant::now() + Duration::from_secs(60), None, |_| {
            tries.set(tries.get() + 1);
            let enough = tries.get() == 2;
            async move { if enough { Ok(7) } else { Err(Status::from(Error::unavailable("down"))) } }
        });
        assert_eq!(answer.await.unwrap(), 7);
        assert_eq!(channels.current().0, 1);
    }
}
