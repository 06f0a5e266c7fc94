//! What runs on each host: the real services, workers and clients of the SDK.

use crate::bus::HostBus;
use crate::clock::{HostClock, sleep};
use crate::database::Sessions;
use crate::dice::{Dice, mix};
use crate::world::{DATABASE, HOSTS, Host, Kind, Late, World};
use crate::{client, net, program};
use harvest_runtime::config::{Settings, load};
use harvest_runtime::{Health, IdSource};
use harvest_sdk::{HarvestBuilder, WorkerConfig};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use turmoil::Sim;

/// Where each service listens for gRPC, and the frontend for HTTP.
const PORT: u16 = 7233;
const HTTP_PORT: u16 = 7240;

/// Puts all hosts into the simulation.
pub fn add_all(sim: &mut Sim<'_>, seed: u64, world: &Arc<World>, late: mpsc::Receiver<Late>) {
    let late = Arc::new(Mutex::new(Some(late)));
    sim.host(DATABASE, move || {
        let statements = late.lock().ok().and_then(|mut late| late.take());
        async move {
            let mut statements = statements.ok_or("the database starts once")?;
            while let Some(statement) = statements.recv().await {
                drop(harvest_runtime::spawn("late-statement", statement));
            }
            Ok(())
        }
    });
    for (name, kind) in HOSTS {
        let host = world.host(name);
        if kind == Kind::Client {
            world.busy_clients.fetch_add(client::CLIENTS, Ordering::Relaxed);
        }
        let world = world.clone();
        sim.host(name, move || {
            let (world, host) = (world.clone(), host.clone());
            async move {
                let (ids, stop) = host.started();
                world.note(format_args!("{} starts", host.name));
                let ended = run(seed, &world, &host, ids, stop).await;
                if let Err(error) = &ended {
                    world.ledger().violations.push(format!("{} ended by an error: {error:#}", host.name));
                }
                world.note(format_args!("{} has ended", host.name));
                if !host.is_asked_to_end() && host.kind != Kind::Client && ended.is_ok() {
                    world.ledger().violations.push(format!("{} ended by itself", host.name));
                }
                host.ended();
                // Its connections are cut when the process is buried.
                std::future::pending().await
            }
        });
    }
}

async fn run(seed: u64, world: &Arc<World>, host: &Arc<Host>, ids: Arc<dyn IdSource>, stop: CancellationToken) -> anyhow::Result<()> {
    match host.kind {
        Kind::Worker => worker(seed, world, host, stop).await,
        Kind::Client => {
            let lives = (0..client::CLIENTS).map(|number| client::live(world.clone(), host.name, number, Dice::new(mix(seed, host.name, 1_000 + number))));
            futures::future::try_join_all(lives).await.map(drop)
        }
        _ => {
            let sessions = Arc::new(Sessions { world: world.clone(), host: host.clone() });
            let parts = Parts { bus: HostBus::start(world, host), sessions, world, host, ids };
            parts.serve(stop).await
        }
    }
}

async fn worker(seed: u64, world: &Arc<World>, host: &Arc<Host>, stop: CancellationToken) -> anyhow::Result<()> {
    let config = WorkerConfig::default()
        .with_addresses([format!("http://frontend-1:{PORT}"), format!("http://frontend-2:{PORT}")])
        .with_identity(host.name)
        .with_workflow_cache_size(6)
        .with_shutdown_timeout(Duration::from_secs(2));
    let worker = HarvestBuilder::new()
        .workflows(program::workflows())
        .activities(program::activities())
        .state(program::Outside { world: world.clone(), host: host.clone() })
        .network(net::network())
        .worker(config)
        .build()?;
    let (client, welcomed) = (worker.client()?, worker.welcomed());
    let dice = Dice::new(mix(seed, host.name, 2_000 + host.starts()));
    let starts = async {
        welcomed.await;
        client::live_beside(world.clone(), client, format!("{}.{}", host.name, host.starts()), dice).await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        ended = worker.run(async move { stop.cancelled().await }) => Ok(ended?),
        () = starts => Ok(()),
    }
}

/// What a service gets from its process.
struct Parts<'a> {
    world: &'a Arc<World>,
    host: &'a Arc<Host>,
    ids: Arc<dyn IdSource>,
    sessions: Arc<Sessions>,
    bus: Arc<HostBus>,
}

impl Parts<'_> {
    /// As a process under a supervisor: one that cannot start is started again.
    async fn serve(&self, stop: CancellationToken) -> anyhow::Result<()> {
        loop {
            match self.service(&stop).await {
                Err(error) if error.is::<NotStarted>() => {
                    self.world.note(format_args!("{}: {error:#}", self.host.name));
                    sleep(Duration::from_millis(300)).await;
                }
                ended => return ended,
            }
        }
    }

    async fn service(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        let (network, ids, health) = (net::network(), self.ids.clone(), Health::new());
        let clock = Arc::new(HostClock { world: self.world.clone(), host: self.host.clone() });
        let (store, directory) = (self.sessions.clone(), self.sessions.clone());
        let bus = self.bus.clone();
        let stop = stop.clone();
        match self.host.kind {
            Kind::Config => {
                let deps = harvest_config::Deps { store, directory, bus, network, clock, ids, health };
                Ok(harvest_config::build(&self.settings()?, deps).await.map_err(NotStarted::new)?.run(stop).await?)
            }
            Kind::History => {
                let deps = harvest_history::Deps { store, directory, bus, network, clock, ids, health };
                harvest_history::build(&self.settings()?, deps).await.map_err(NotStarted::new)?.run(stop).await
            }
            Kind::Matching => {
                let deps = harvest_matching::Deps { directory, network, clock, ids, health };
                Ok(harvest_matching::build(&self.settings()?, deps).await.map_err(NotStarted::new)?.run(stop).await?)
            }
            Kind::TimerScanner => {
                let deps = harvest_timer_scanner::Deps { store, directory, network, clock, ids, health };
                Ok(harvest_timer_scanner::build(&self.settings()?, deps).await.map_err(NotStarted::new)?.run(stop).await?)
            }
            Kind::Frontend => {
                let deps = harvest_frontend::Deps { store, directory, bus, network, clock, ids, health };
                Ok(harvest_frontend::build(&self.settings()?, deps).await.map_err(NotStarted::new)?.run(stop).await?)
            }
            Kind::Worker | Kind::Client => Ok(()),
        }
    }

    /// The defaults, at this host's name.
    fn settings<C: Settings>(&self) -> anyhow::Result<C> {
        let own = [
            ("HARVEST_FLEET", "simulation".to_owned()),
            ("HARVEST_GRPC_LISTEN", format!("0.0.0.0:{PORT}")),
            ("HARVEST_HTTP_LISTEN", format!("0.0.0.0:{HTTP_PORT}")),
            ("HARVEST_ADVERTISE_ADDRESS", format!("http://{}:{PORT}", self.host.name)),
            // Required, but not used: store and bus are handed in.
            ("HARVEST_DATABASE_URL", "postgres://unused".to_owned()),
            ("HARVEST_REDIS_URL", "redis://unused".to_owned()),
            ("HARVEST_SHARD__CACHED_RUNS", "8".to_owned()),
        ];
        Ok(load::<C>(None, own.map(|(name, value)| (name.to_owned(), value)))?.settings)
    }
}

/// A service that could not be built, for example because the database did not answer.
#[derive(Debug, thiserror::Error)]
#[error("not started: {0}")]
struct NotStarted(String);

impl NotStarted {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(format!("{error:#}"))
    }
}
