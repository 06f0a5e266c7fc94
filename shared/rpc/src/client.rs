//! Channels to other processes, and retries within the caller's deadline.
#![expect(clippy::disallowed_methods, reason = "deadlines and pauses of calls are counted on the runtime's own clock, which tests can stop")]

use crate::error::Error;
use crate::network::Network;
use crate::reason::Reason;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// How channels behave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelOptions {
    /// The longest wait for a connection.
    pub connect_timeout: Duration,
    /// How often a connection with calls in flight is probed, so that calls to a frozen or vanished process end.
    pub keepalive_interval: Duration,
    /// How long a probe may stay unanswered.
    pub keepalive_timeout: Duration,
    /// Most channels that are kept; reaching it forgets them all (they reconnect when used).
    pub max_channels: usize,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_millis(500),
            keepalive_interval: Duration::from_secs(2),
            keepalive_timeout: Duration::from_secs(2),
            max_channels: 1_024,
        }
    }
}

/// Lazily connecting channels, one per address. A channel reconnects by itself; cloning one is cheap.
#[derive(Debug)]
pub struct Channels {
    network: Network,
    options: ChannelOptions,
    open: Mutex<HashMap<String, Channel>>,
}

impl Default for Channels {
    fn default() -> Self {
        Self::on(Network::tcp())
    }
}

impl Channels {
    /// No channel yet; those to come connect over `network` with the usual options.
    pub fn on(network: Network) -> Self {
        Self { network, options: ChannelOptions::default(), open: Mutex::new(HashMap::new()) }
    }

    /// The channel to an address such as `http://127.0.0.1:7300`. Nothing is connected before the first call.
    ///
    /// # Errors
    /// [`Reason::Internal`] when the address is not a URI: addresses come from processes of the fleet.
    pub fn get(&self, address: &str) -> Result<Channel, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = open.get(address) {
            return Ok(channel.clone());
        }
        let channel = self.network.channel(&endpoint(address, &self.options)?);
        if open.len() >= self.options.max_channels {
            open.clear();
        }
        open.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// Forgets the channel of a process that is gone.
    pub fn forget(&self, address: &str) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(address);
    }
}

/// The endpoint of an address.
///
/// # Errors
/// [`Reason::Internal`] when the address is not a URI.
pub fn endpoint(address: &str, options: &ChannelOptions) -> Result<Endpoint, Error> {
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|error| Error::internal(format!("address {address:?}: {error}")))?;
    Ok(endpoint
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(options.keepalive_interval)
        .keep_alive_timeout(options.keepalive_timeout)
        .keep_alive_while_idle(false)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20))
}

/// Makes a call until it is answered, refused for good, or the deadline passes: 10 ms to 500 ms between tries, or as long as the refusal of an
/// overloaded process asks for. The attempt must be idempotent: the same request id each time.
///
/// # Errors
/// The last refusal; [`Reason::DeadlineExceeded`] when an attempt was still waiting at the deadline.
pub async fn retry_until<T, F>(deadline: Instant, mut attempt: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pauses = ExponentialBuilder::new()
        .with_factor(2.0)
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(500))
        .without_max_times()
        .build();
    loop {
        let error = match tokio::time::timeout_at(deadline, attempt()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if !error.retryable() => return Err(error),
            Ok(Err(error)) => error,
            Err(_) => return Err(Error::new(Reason::DeadlineExceeded, "the deadline passed before an answer came")),
        };
        let pause = pauses.next().unwrap_or(Duration::from_millis(500));
        let asked = error.retry_after.filter(|_| error.reason == Reason::Overloaded);
        let pause = asked.map_or(pause, |asked| pause.max(asked));
        if Instant::now() + pause >= deadline {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_service_is_asked_again_until_it_answers() {
        let tries = Cell::new(0);
        let deadline = Instant::now() + Duration::from_secs(10);
        let answer = retry_until(deadline, || {
            tries.set(tries.get() + 1);
            let enough = tries.get() == 4;
            async move { if enough { Ok(7) } else { Err(Error::unavailable("down")) } }
        })
        .await;
        assert_eq!((answer, tries.get()), (Ok(7), 4));
    }

    #[tokio::test(start_paused = true)]
    async fn an_overloaded_service_is_given_the_time_that_it_asks_for() {
        let tries = Cell::new(0_u32);
        let began = Instant::now();
        let answer = retry_until(began + Duration::from_secs(60), || {
            tries.set(tries.get() + 1);
            let enough = tries.get() == 3;
            let busy = Error { retry_after: Some(Duration::from_secs(7)), ..Error::new(Reason::Overloaded, "busy") };
            async move { if enough { Ok(7) } else { Err(busy) } }
        })
        .await;
        assert_eq!((answer, tries.get()), (Ok(7), 3));
        assert_eq!(began.elapsed().as_secs(), 14);
    }

    #[tokio::test(start_paused = true)]
    async fn a_final_refusal_is_not_repeated_and_the_deadline_ends_the_tries() {
        let deadline = Instant::now() + Duration::from_secs(1);
        let tries = Cell::new(0);
        let refused = retry_until::<(), _>(deadline, || {
            tries.set(tries.get() + 1);
            async { Err(Error::new(Reason::WorkflowNotFound, "no")) }
        })
        .await;
        assert_eq!((refused.unwrap_err().reason, tries.get()), (Reason::WorkflowNotFound, 1));
        let down = retry_until::<(), _>(deadline, || async { Err(Error::unavailable("down")) }).await;
        assert_eq!(down.unwrap_err().reason, Reason::Unavailable);
        let silent = retry_until::<(), _>(deadline, std::future::pending).await;
        assert_eq!(silent.unwrap_err().reason, Reason::DeadlineExceeded);
    }
}
