//! `harvest dev`: all five services in one process.
//!
//! They are the same services as in a fleet and talk over gRPC on loopback; only the store and the bus differ: one SQLite file and a
//! channel in the process, unless `--postgres` and `--redis` name the real ones.

use anyhow::{Context as _, bail};
use clap::Args;
use harvest_fleet_config::{Bus, LocalBus, RedisBus};
use harvest_persistence::control::{ConfigStore, DirectoryStore};
use harvest_persistence::embedded::EmbeddedStore;
use harvest_persistence::postgres::{PgOptions, PgStore, migrate};
use harvest_persistence::store::ShardStore;
use harvest_rpc::{InProcess, Network};
use harvest_runtime::config::{Settings, load};
use harvest_runtime::{Clock, Health, IdSource, Shutdown, SystemClock, SystemIds, crash, telemetry};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long tasks may take to end after the services have.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs all of Harvest in one process, for development. Open to everybody on this machine: it listens on loopback only.
#[derive(Debug, Args)]
pub struct Dev {
    /// The file that runs are kept in; made when it is not there.
    #[arg(long, value_name = "FILE", default_value = ".harvest/dev.db", conflicts_with = "memory")]
    store: PathBuf,
    /// Keep runs in memory: they are gone when the process ends.
    #[arg(long)]
    memory: bool,
    /// Keep runs in this Postgres instead; its schema is created or upgraded.
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "memory"])]
    postgres: Option<String>,
    /// Broadcast configuration over this Redis instead of within the process.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Where gRPC listens; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", env = "HARVEST_GRPC_LISTEN", default_value = "127.0.0.1:7233")]
    grpc_listen: SocketAddr,
    /// Where the HTTP API, health and metrics listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", env = "HARVEST_HTTP_LISTEN", default_value = "127.0.0.1:7240")]
    http_listen: SocketAddr,
    /// How many shards a new store gets.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: u32,
}

/// What all services share.
struct Parts {
    shards: Arc<dyn ShardStore>,
    directory: Arc<dyn DirectoryStore>,
    config: Arc<dyn ConfigStore>,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    health: Health,
    /// How the services reach each other.
    network: Network,
}

impl Dev {
    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// When a port is taken, the store cannot be opened, or a service ends by itself.
    pub async fn run(self) -> anyhow::Result<()> {
        for (flag, address) in [("--grpc-listen", self.grpc_listen), ("--http-listen", self.http_listen)] {
            if !address.ip().is_loopback() {
                bail!("{flag} {address}: `harvest dev` has no authentication and listens on loopback only (127.0.0.1 or [::1])");
            }
        }
        self.check_ports()?;
        telemetry::init();
        crash::arm_from_environment()?;
        let shutdown = Shutdown::on_signals()?;
        let parts = self.parts(shutdown.token()).await?;
        let result = self.serve(parts, shutdown.token()).await;
        shutdown.begin();
        shutdown.drain(DRAIN_TIMEOUT).await;
        result
    }

    /// A taken port is an error before anything is begun: the frontend, which binds them for good, is the last service to start.
    fn check_ports(&self) -> anyhow::Result<()> {
        let bind = |flag, address: SocketAddr| TcpListener::bind(address).with_context(|| format!("{flag}: cannot listen on {address}"));
        // Both at once: they must not be the same.
        let held = (bind("--grpc-listen", self.grpc_listen)?, bind("--http-listen", self.http_listen)?);
        drop(held);
        Ok(())
    }

    async fn parts(&self, shutdown: CancellationToken) -> anyhow::Result<Parts> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let bus: Arc<dyn Bus> = match &self.redis {
            Some(url) => Arc::new(RedisBus::start(url, "dev", clock.clone(), shutdown)?),
            None => Arc::new(LocalBus::new()),
        };
        let (ids, health) = (Arc::new(SystemIds), Health::new());
        let network = Network::over(Arc::new(InProcess::default()));
        if let Some(url) = &self.postgres {
            migrate(url, self.shards).await?;
            let store = Arc::new(PgStore::connect(url, PgOptions::default()).await?);
            return Ok(Parts { shards: store.clone(), directory: store.clone(), config: store, bus, clock, ids, health, network });
        }
        let store = if self.memory {
            EmbeddedStore::in_memory()?
        } else {
            if let Some(folder) = self.store.parent() {
                std::fs::create_dir_all(folder).with_context(|| format!("the folder {} cannot be made", folder.display()))?;
            }
            EmbeddedStore::open(&self.store)?
        };
        store.migrate(self.shards).await?;
        let store = Arc::new(store);
        Ok(Parts { shards: store.clone(), directory: store.clone(), config: store, bus, clock, ids, health, network })
    }

    /// Runs the services until the shutdown or until one ends by itself. The frontend ends first and history last but config, so that what
    /// has been accepted can still be finished.
    async fn serve(&self, parts: Parts, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut services = Services::default();
        parts.start_config(&mut services).await?;
        parts.start_matching(&mut services).await?;
        parts.start_timer_scanner(&mut services).await?;
        parts.start_history(&mut services).await?;
        let listen = [("HARVEST_GRPC_LISTEN", self.grpc_listen.to_string()), ("HARVEST_HTTP_LISTEN", self.http_listen.to_string())];
        parts.start_frontend(&listen, &mut services).await?;
        services.run(shutdown).await
    }
}

impl Parts {
    async fn start_config(&self, services: &mut Services) -> anyhow::Result<()> {
        let deps = harvest_config::Deps {
            store: self.config.clone(),
            directory: self.directory.clone(),
            bus: self.bus.clone(),
            network: self.network.clone(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            health: self.health.clone(),
        };
        let service = harvest_config::build(&settings(&[])?, deps).await?;
        services.spawn("config", |token| async move { Ok(service.run(token).await?) });
        Ok(())
    }

    async fn start_matching(&self, services: &mut Services) -> anyhow::Result<()> {
        let (directory, clock, ids, health) = (self.directory.clone(), self.clock.clone(), self.ids.clone(), self.health.clone());
        let service = harvest_matching::build(&settings(&[])?, harvest_matching::Deps { directory, network: self.network.clone(), clock, ids, health }).await?;
        services.spawn("matching", |token| async move { Ok(service.run(token).await?) });
        Ok(())
    }

    async fn start_timer_scanner(&self, services: &mut Services) -> anyhow::Result<()> {
        let deps = harvest_timer_scanner::Deps {
            store: self.shards.clone(),
            directory: self.directory.clone(),
            network: self.network.clone(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            health: self.health.clone(),
        };
        let service = harvest_timer_scanner::build(&settings(&[])?, deps).await?;
        services.spawn("timer-scanner", |token| async move { Ok(service.run(token).await?) });
        Ok(())
    }

    async fn start_history(&self, services: &mut Services) -> anyhow::Result<()> {
        let deps = harvest_history::Deps {
            store: self.shards.clone(),
            directory: self.directory.clone(),
            bus: self.bus.clone(),
            network: self.network.clone(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            health: self.health.clone(),
        };
        let service = harvest_history::build(&settings(&[])?, deps).await?;
        services.spawn("history", |token| async move { service.run(token).await });
        Ok(())
    }

    async fn start_frontend(&self, listen: &[(&str, String)], services: &mut Services) -> anyhow::Result<()> {
        let deps = harvest_frontend::Deps {
            store: self.shards.clone(),
            directory: self.directory.clone(),
            bus: self.bus.clone(),
            // Those that come from outside come by TCP.
            network: self.network.clone().listening_on_tcp(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            health: self.health.clone(),
        };
        let service = harvest_frontend::build(&settings(listen)?, deps).await?;
        println!("gRPC  {}", service.address());
        println!("HTTP  http://{}/api/harvest", service.http_address());
        services.spawn("frontend", |token| async move { Ok(service.run(token).await?) });
        Ok(())
    }
}

/// A service's settings within `harvest dev`: the defaults, on free ports of loopback.
fn settings<C: Settings>(overrides: &[(&str, String)]) -> anyhow::Result<C> {
    let common = [
        ("HARVEST_FLEET", "dev"),
        ("HARVEST_GRPC_LISTEN", "127.0.0.1:0"),
        ("HARVEST_HTTP_LISTEN", "127.0.0.1:0"),
        // Required, but not used: store and bus are handed in.
        ("HARVEST_DATABASE_URL", "postgres://unused"),
        ("HARVEST_REDIS_URL", "redis://unused"),
    ];
    let environment = common.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let overrides = overrides.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Ok(load::<C>(None, environment.chain(overrides))?.settings)
}

/// Running services, in the order in which they were started.
#[derive(Default)]
struct Services {
    running: JoinSet<(&'static str, anyhow::Result<()>)>,
    stops: Vec<(&'static str, CancellationToken)>,
}

impl Services {
    fn spawn<F>(&mut self, name: &'static str, service: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let service = service(stop.clone());
        self.stops.push((name, stop));
        self.running.spawn(async move { (name, service.await) });
    }

    /// Waits for the shutdown or the first service that ends, then ends the others: those started last first.
    async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut result = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            ended = self.running.join_next() => outcome(ended),
        };
        while let Some((_, stop)) = self.stops.pop() {
            stop.cancel();
            let ended = self.running.join_next().await;
            if result.is_ok() {
                result = ended.map_or(Ok(()), |ended| ended.context("a service panicked")?.1);
            }
        }
        result
    }
}

fn outcome(ended: Option<Result<(&'static str, anyhow::Result<()>), tokio::task::JoinError>>) -> anyhow::Result<()> {
    match ended {
        Some(Ok((name, Ok(())))) => bail!("{name} ended by itself"),
        Some(Ok((name, Err(error)))) => Err(error.context(format!("{name} ended by an error"))),
        Some(Err(error)) => Err(error.into()),
        None => bail!("no service was started"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dev(grpc_listen: SocketAddr, http_listen: SocketAddr) -> Dev {
        Dev { store: PathBuf::new(), memory: true, postgres: None, redis: None, grpc_listen, http_listen, shards: 1 }
    }

    #[test]
    fn a_taken_port_is_refused_before_anything_begins() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (taken, free) = (listener.local_addr().unwrap(), "127.0.0.1:0".parse().unwrap());
        dev(free, free).check_ports().unwrap();
        for (dev, flag) in [(dev(taken, free), "--grpc-listen"), (dev(free, taken), "--http-listen")] {
            let refused = dev.check_ports().unwrap_err();
            assert_eq!(refused.to_string(), format!("{flag}: cannot listen on {taken}"));
        }
    }

    #[test]
    fn two_servers_cannot_have_one_port() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(dev(free, free).check_ports().unwrap_err().to_string().starts_with("--http-listen"));
    }
}
