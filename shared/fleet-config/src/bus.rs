//! Broadcast of small messages to every process of the fleet. Messages may be lost: each is a hint.

mod local;
mod redis;

pub use self::local::LocalBus;
pub use self::redis::RedisBus;

use crate::Version;
use async_trait::async_trait;
use tokio::sync::broadcast;

/// How many events a slow subscriber may be behind before it is told that it missed some.
pub(crate) const CAPACITY: usize = 256;

/// What the config service tells everybody. Processes ignore kinds that they do not know.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// Once a second: the newest version is this.
    Beacon {
        /// The version.
        version: Version,
    },
    /// The limits have changed.
    LimitsChanged {
        /// The new version.
        version: Version,
        /// All limits, as stored.
        limits: serde_json::Value,
    },
    /// Types or served queues have changed: worth a pull.
    RegistryChanged,
}

/// What a subscriber gets.
#[derive(Debug, Clone, PartialEq)]
pub enum BusEvent {
    /// A message.
    Message(Message),
    /// The subscription has begun, anew or for the first time: messages before it were missed.
    Connected,
}

/// A message could not be published.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the bus cannot be reached: {0}")]
pub struct BusError(pub String);

/// Broadcast to every process.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Sends a message to all subscribers, this process's included.
    async fn publish(&self, message: &Message) -> Result<(), BusError>;

    /// Receives from now on. A receiver that lags has missed messages.
    fn subscribe(&self) -> broadcast::Receiver<BusEvent>;
}
