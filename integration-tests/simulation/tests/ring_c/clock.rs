//! The clocks of a host: its own idea of the wall clock, and the simulation's time.

use crate::world::{Host, World};
use async_trait::async_trait;
use harvest_ids::Timestamp;
use harvest_runtime::Clock;
use std::sync::Arc;
use std::time::Duration;

/// The longest single sleep before the wall clock is looked at again, as with the machine's clock.
const MAX_NAP: Duration = Duration::from_secs(10);

/// A host's clock.
pub struct HostClock {
    pub world: Arc<World>,
    pub host: Arc<Host>,
}

#[async_trait]
impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.world.now().as_millis() + self.host.skew_ms())
    }

    fn monotonic(&self) -> Duration {
        self.world.elapsed()
    }

    async fn sleep_until(&self, at: Timestamp) {
        loop {
            let left = at.since(self.now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(MAX_NAP)).await;
        }
    }

    async fn sleep(&self, span: Duration) {
        sleep(span).await;
    }
}

/// Lets the simulation's time pass.
#[expect(clippy::disallowed_methods, reason = "the time of a host in the simulation is tokio's, which the simulation moves")]
pub async fn sleep(span: Duration) {
    tokio::time::sleep(span).await; // sleep: this is the simulated clock itself
}
