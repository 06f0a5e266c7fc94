//! The configuration in memory of one process, kept fresh in the background.

use crate::bus::{Bus, BusEvent, Message};
use crate::source::ConfigSource;
use crate::{FleetConfig, FleetLimits, Version};
use arc_swap::ArcSwap;
use harvest_rpc::Error;
use harvest_runtime::{Clock, metrics};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

/// Times of keeping the configuration fresh.
#[derive(Debug, Clone)]
pub struct ConfigOptions {
    /// The name under which metrics show this process's version.
    pub service: &'static str,
    /// After this long without a beacon, snapshots are pulled.
    pub beacon_timeout: Duration,
    /// How often, as long as no beacon comes.
    pub pull_interval: Duration,
    /// The pause after a pull that failed.
    pub retry_interval: Duration,
    /// The least time between two pulls asked for by [`ConfigHandle::refresh`].
    pub min_gap: Duration,
}

impl ConfigOptions {
    /// The usual times: a fleet without its bus converges within 5 s.
    pub fn new(service: &'static str) -> Self {
        Self {
            service,
            beacon_timeout: Duration::from_secs(3),
            pull_interval: Duration::from_secs(2),
            retry_interval: Duration::from_millis(500),
            min_gap: Duration::from_millis(100),
        }
    }
}

/// The configuration. Cheap to clone; all clones share it.
#[derive(Clone)]
pub struct ConfigHandle {
    shared: Arc<Shared>,
}

struct Shared {
    source: Arc<dyn ConfigSource>,
    clock: Arc<dyn Clock>,
    options: ConfigOptions,
    config: ArcSwap<FleetConfig>,
    /// Serialises replacing the configuration.
    state: Mutex<State>,
    /// Serialises pulls, so that those who wait find what they asked for already pulled.
    pulling: tokio::sync::Mutex<()>,
    versions: watch::Sender<Version>,
    registrations: watch::Sender<()>,
}

/// Times on the monotonic clock.
#[derive(Debug, Default)]
struct State {
    pull_began: Option<Duration>,
    /// When this process last knew that its version is the newest.
    fresh_at: Duration,
    failing: bool,
}

impl ConfigHandle {
    /// Subscribes, pulls once, and keeps the configuration fresh until `shutdown`. A pull that fails is no error: until one succeeds,
    /// [`FleetConfig::loaded`] is false.
    pub async fn start(bus: &dyn Bus, source: Arc<dyn ConfigSource>, clock: Arc<dyn Clock>, options: ConfigOptions, shutdown: CancellationToken) -> Self {
        let events = bus.subscribe(); // before the pull, so that nothing falls between
        let shared = Shared {
            source,
            clock,
            options,
            config: ArcSwap::default(),
            state: Mutex::default(),
            pulling: tokio::sync::Mutex::default(),
            versions: watch::channel(Version::default()).0,
            registrations: watch::channel(()).0,
        };
        let handle = Self { shared: Arc::new(shared) };
        let loaded = handle.pull(false).await.is_ok();
        drop(harvest_runtime::spawn("configuration", handle.clone().run(events, loaded, shutdown)));
        handle
    }

    /// The configuration at this moment.
    pub fn get(&self) -> Arc<FleetConfig> {
        self.shared.config.load_full()
    }

    /// A receiver that sees each new version.
    pub fn versions(&self) -> watch::Receiver<Version> {
        self.shared.versions.subscribe()
    }

    /// A receiver that sees whenever what is registered about workflows and activities has changed.
    pub fn registrations(&self) -> watch::Receiver<()> {
        self.shared.registrations.subscribe()
    }

    /// Where the configuration comes from, for acknowledgements.
    pub fn source(&self) -> Arc<dyn ConfigSource> {
        self.shared.source.clone()
    }

    /// Pulls now: what is in memory afterwards is at least as new as the time of the call. Calls at the same time share one pull.
    ///
    /// # Errors
    /// When no process of the config service answers: the last copy stays.
    pub async fn refresh(&self) -> Result<(), Error> {
        self.pull(true).await
    }

    async fn run(self, mut events: broadcast::Receiver<BusEvent>, mut pulled: bool, shutdown: CancellationToken) {
        let clock = self.shared.clock.clone();
        let mut quiet_since = clock.monotonic();
        let mut bus_open = true;
        loop {
            let options = &self.shared.options;
            let next = if pulled {
                (quiet_since + options.beacon_timeout).max(self.last_pull() + options.pull_interval)
            } else {
                self.last_pull() + options.retry_interval
            };
            let wait = next.saturating_sub(clock.monotonic());
            let mut stale = tokio::select! {
                () = shutdown.cancelled() => return,
                event = events.recv(), if bus_open => match event {
                    Ok(BusEvent::Message(message)) => {
                        if matches!(message, Message::Beacon { .. }) {
                            quiet_since = clock.monotonic();
                        }
                        self.apply(message)
                    }
                    Ok(BusEvent::Connected) | Err(RecvError::Lagged(_)) => true,
                    Err(RecvError::Closed) => {
                        bus_open = false;
                        false
                    }
                },
                () = clock.sleep(wait) => true,
            };
            if !pulled && clock.monotonic() < next {
                stale = false; // a failed pull is not repeated at every message
            }
            if stale {
                pulled = self.pull(false).await.is_ok();
            }
            self.show();
        }
    }

    /// Takes a message; true when it shows that something was missed.
    fn apply(&self, message: Message) -> bool {
        let now = self.shared.clock.monotonic();
        match message {
            Message::Beacon { version } => {
                let present = self.get().version;
                if version == present {
                    self.state().fresh_at = now;
                }
                version > present
            }
            Message::LimitsChanged { version, limits } => {
                let mut state = self.state();
                let present = self.get();
                if !present.loaded || !present.version.is_followed_by(version) {
                    return !present.loaded || version > present.version;
                }
                let config = FleetConfig { version, limits: FleetLimits::from_document(&limits), ..FleetConfig::clone(&present) };
                self.shared.config.store(Arc::new(config));
                state.fresh_at = now;
                drop(state);
                self.shared.versions.send_replace(version);
                false
            }
            Message::RegistryChanged => true,
        }
    }

    async fn pull(&self, distance: bool) -> Result<(), Error> {
        let clock = &self.shared.clock;
        let asked = clock.monotonic();
        let _one_at_a_time = self.shared.pulling.lock().await;
        let last = self.state().pull_began;
        if let Some(last) = last {
            if last > asked && !self.state().failing {
                return Ok(());
            }
            let wait = (last + self.shared.options.min_gap).saturating_sub(clock.monotonic());
            if distance && !wait.is_zero() {
                clock.sleep(wait).await;
            }
        }
        let began = clock.monotonic();
        self.state().pull_began = Some(began);
        let pulled = self.shared.source.pull().await;
        let mut state = self.state();
        match pulled {
            Ok(mut pulled) => {
                if std::mem::replace(&mut state.failing, false) {
                    tracing::info!(version = %pulled.version, "the configuration can be pulled again");
                }
                let present = self.get();
                let newer = pulled.version > present.version;
                if !newer && present.loaded {
                    // A replica that is behind, or a broadcast that was faster: limits never go back.
                    (pulled.version, pulled.limits) = (present.version, present.limits);
                }
                let version = pulled.version;
                state.fresh_at = began;
                if pulled.activity_types == present.activity_types {
                    pulled.activity_types = present.activity_types.clone();
                }
                let registered = pulled.activity_types != present.activity_types || pulled.workflow_types != present.workflow_types;
                self.shared.config.store(Arc::new(pulled));
                drop(state);
                if registered {
                    self.shared.registrations.send_replace(());
                }
                if newer {
                    self.shared.versions.send_replace(version);
                }
                self.show();
                Ok(())
            }
            Err(error) => {
                if !std::mem::replace(&mut state.failing, true) {
                    tracing::warn!(%error, "the configuration cannot be pulled: the last copy stays");
                }
                Err(error)
            }
        }
    }

    fn last_pull(&self) -> Duration {
        self.state().pull_began.unwrap_or_default()
    }

    fn show(&self) {
        let service = self.shared.options.service;
        metrics::CONFIG_VERSION.set_count(self.get().version.number, [service]);
        let staleness = self.shared.clock.monotonic().saturating_sub(self.state().fresh_at);
        metrics::CONFIG_STALENESS.set(staleness.as_secs_f64(), [service]);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no code panics while it holds this lock")
    }
}

impl std::fmt::Debug for ConfigHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigHandle").field("version", &self.get().version).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
