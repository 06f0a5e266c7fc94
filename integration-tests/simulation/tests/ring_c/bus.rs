//! The bus as one host sees it: messages come late, or not at all.

use crate::clock::sleep;
use crate::world::{Host, World};
use async_trait::async_trait;
use harvest_fleet_config::{Bus, BusError, BusEvent, Message};
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// Events of the host that its services are behind at most.
const CAPACITY: usize = 256;

/// A host's way to the bus.
pub struct HostBus {
    world: Arc<World>,
    host: Arc<Host>,
    events: broadcast::Sender<BusEvent>,
}

impl HostBus {
    /// Begins to receive. Call it on the host.
    pub fn start(world: &Arc<World>, host: &Arc<Host>) -> Arc<Self> {
        let events = broadcast::channel(CAPACITY).0;
        let (shared, here, local) = (world.bus.subscribe(), host.clone(), events.clone());
        drop(harvest_runtime::spawn("simulated-bus", forward(here, shared, local)));
        Arc::new(Self { world: world.clone(), host: host.clone(), events })
    }
}

async fn forward(host: Arc<Host>, mut shared: broadcast::Receiver<BusEvent>, local: broadcast::Sender<BusEvent>) {
    let mut was_cut = false;
    loop {
        let event = match shared.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(_)) => BusEvent::Connected,
            Err(RecvError::Closed) => return,
        };
        let (cut, loses) = host.bus_faults();
        if cut {
            was_cut = true;
            continue;
        }
        if loses && host.dice.one_in(2) {
            continue;
        }
        sleep(host.dice.millis(20)).await;
        // Nobody may have subscribed yet, or any more.
        if std::mem::take(&mut was_cut) {
            drop(local.send(BusEvent::Connected));
        }
        drop(local.send(event));
    }
}

#[async_trait]
impl Bus for HostBus {
    async fn publish(&self, message: &Message) -> Result<(), BusError> {
        sleep(self.host.dice.millis(2)).await;
        if self.host.bus_faults().0 {
            return Err(BusError("made to fail".to_owned()));
        }
        self.world.bus.publish(message).await
    }

    fn subscribe(&self) -> broadcast::Receiver<BusEvent> {
        self.events.subscribe()
    }
}
