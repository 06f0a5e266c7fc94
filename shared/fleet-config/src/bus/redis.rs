//! The bus of a fleet of processes: plain PUBLISH and SUBSCRIBE on one channel, so that it is right on a Redis Cluster too.

use super::{Bus, BusError, BusEvent, CAPACITY, Message};
use async_trait::async_trait;
use futures::StreamExt as _;
use harvest_runtime::{Clock, metrics};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// How long connecting and publishing may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A beacon comes every second: after this long without any message the connection is taken for dead and opened anew.
const SILENCE: Duration = Duration::from_secs(5);
/// Pauses between attempts to connect.
const RETRY: [Duration; 4] = [Duration::from_millis(100), Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];

/// Broadcast through Redis. One subscription a process, however many subscribers it has.
pub struct RedisBus {
    channel: String,
    events: broadcast::Sender<BusEvent>,
    publisher: ConnectionManager,
}

impl RedisBus {
    /// A bus on channel `harvest:{fleet}:config`. It connects in the background until `shutdown`, and again whenever the connection breaks:
    /// Redis may be down when this is called.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub fn start(url: &str, fleet: &str, clock: Arc<dyn Clock>, shutdown: CancellationToken) -> Result<Self, BusError> {
        let malformed = |error: redis::RedisError| BusError(error.to_string());
        let client = redis::Client::open(url).map_err(malformed)?;
        let config = ConnectionManagerConfig::new().set_number_of_retries(1).set_connection_timeout(Some(TIMEOUT)).set_response_timeout(Some(TIMEOUT));
        let publisher = ConnectionManager::new_lazy_with_config(client.clone(), config).map_err(malformed)?;
        let bus = Self { channel: format!("harvest:{fleet}:config"), events: broadcast::channel(CAPACITY).0, publisher };
        let subscriber = Subscriber { client, channel: bus.channel.clone(), events: bus.events.clone(), clock };
        drop(harvest_runtime::spawn("redis subscription", async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = subscriber.run() => {}
            }
        }));
        Ok(bus)
    }
}

#[async_trait]
impl Bus for RedisBus {
    async fn publish(&self, message: &Message) -> Result<(), BusError> {
        let text = serde_json::to_string(message).map_err(|error| BusError(error.to_string()))?;
        let mut publisher = self.publisher.clone();
        let receivers: Result<i64, _> = redis::cmd("PUBLISH").arg(&self.channel).arg(text).query_async(&mut publisher).await;
        receivers.map(drop).map_err(|error| BusError(error.to_string()))
    }

    fn subscribe(&self) -> broadcast::Receiver<BusEvent> {
        self.events.subscribe()
    }
}

struct Subscriber {
    client: redis::Client,
    channel: String,
    events: broadcast::Sender<BusEvent>,
    clock: Arc<dyn Clock>,
}

impl Subscriber {
    async fn run(self) {
        let mut failures = 0;
        loop {
            match self.receive(&mut failures).await {
                Ok(reason) => tracing::warn!(reason, "the subscription to the bus ended: subscribing again"),
                // One warning an outage.
                Err(error) if failures == 0 => tracing::warn!(%error, "the bus cannot be reached: the configuration is polled meanwhile"),
                Err(error) => tracing::debug!(%error, "the bus cannot be reached"),
            }
            self.clock.sleep(RETRY[failures.min(RETRY.len() - 1)]).await;
            failures += 1;
        }
    }

    /// Subscribes and passes messages on until the connection breaks.
    async fn receive(&self, failures: &mut usize) -> Result<&'static str, redis::RedisError> {
        let (mut sink, mut messages) = self.bounded(self.client.get_async_pubsub()).await?.split();
        self.bounded(sink.subscribe(&self.channel)).await?;
        if *failures > 0 {
            tracing::info!("the bus can be reached again");
        }
        *failures = 0;
        self.tell(BusEvent::Connected);
        loop {
            let next = tokio::select! {
                next = messages.next() => next,
                () = self.clock.sleep(SILENCE) => return Ok("no beacon"),
            };
            let Some(message) = next else { return Ok("connection closed") };
            match message.get_payload::<String>().map(|text| serde_json::from_str(&text)) {
                Ok(Ok(message)) => self.tell(BusEvent::Message(message)),
                // A newer release's message, or another program's.
                Ok(Err(error)) => unreadable(&error),
                Err(error) => unreadable(&error),
            }
        }
    }

    async fn bounded<T>(&self, connecting: impl Future<Output = redis::RedisResult<T>>) -> redis::RedisResult<T> {
        tokio::select! {
            done = connecting => done,
            () = self.clock.sleep(TIMEOUT) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    fn tell(&self, event: BusEvent) {
        // An error says that nobody has subscribed in this process.
        drop(self.events.send(event));
    }
}

fn unreadable(error: &dyn std::error::Error) {
    metrics::BUS_UNREADABLE.add(1, []);
    tracing::debug!(%error, "a message on the bus is not understood");
}
