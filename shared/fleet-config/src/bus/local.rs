//! The bus of a fleet in one process.

use super::{Bus, BusError, BusEvent, CAPACITY, Message};
use async_trait::async_trait;
use tokio::sync::broadcast;

/// Broadcast within the process.
#[derive(Debug, Clone)]
pub struct LocalBus {
    events: broadcast::Sender<BusEvent>,
}

impl LocalBus {
    /// A bus without subscribers.
    pub fn new() -> Self {
        Self { events: broadcast::channel(CAPACITY).0 }
    }
}

impl Default for LocalBus {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Bus for LocalBus {
    async fn publish(&self, message: &Message) -> Result<(), BusError> {
        // An error says that nobody has subscribed, which is no failure of a broadcast.
        drop(self.events.send(BusEvent::Message(message.clone())));
        Ok(())
    }

    fn subscribe(&self) -> broadcast::Receiver<BusEvent> {
        self.events.subscribe()
    }
}
