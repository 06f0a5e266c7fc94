//! Postgres and Redis for a fleet: shared ones that the environment names, or private ones that a test may stop and kill.

use crate::binaries;
use crate::eventually::eventually;
use crate::ports;
use crate::process::{Process, Program};
use anyhow::Context as _;
use harvest_persistence::provision::{self, PgServer};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Mutex;

/// Names a Redis that tests may use: each fleet has channels of its own there.
pub const REDIS_VARIABLE: &str = "HARVEST_TEST_REDIS_URL";

/// How long Redis may take to answer.
const REDIS_START: Duration = Duration::from_secs(30);

/// A database for one fleet.
pub struct Database {
    /// Its URL.
    pub url: String,
    /// The server, when it is this test's own.
    pub server: Option<Mutex<PgServer>>,
}

impl Database {
    /// A new database; on a server of its own when the test means to stop it.
    ///
    /// # Errors
    /// When there is no Postgres to be had.
    pub async fn start(own_server: bool) -> anyhow::Result<Self> {
        if !own_server {
            return Ok(Self { url: provision::database().await?, server: None });
        }
        let server = PgServer::start().await?;
        let url = provision::create_database(&server.url("postgres")).await?;
        Ok(Self { url, server: Some(Mutex::new(server)) })
    }

    /// The server of this test's own, to be killed and restarted.
    ///
    /// # Errors
    /// When the fleet was started on a shared one.
    pub fn own_server(&self) -> anyhow::Result<&Mutex<PgServer>> {
        self.server.as_ref().context("this fleet has no Postgres of its own: ask for one in its plan")
    }
}

/// A Redis for one fleet.
pub struct Redis {
    /// Its URL.
    pub url: String,
    /// The server, when it is this test's own.
    pub server: Option<Process>,
}

impl Redis {
    /// The shared one that the environment names, unless there is none or the test means to stop it.
    ///
    /// # Errors
    /// When `redis-server` is missing or does not start.
    pub async fn start(own_server: bool, folder: &Path) -> anyhow::Result<Self> {
        if let Some(url) = std::env::var(REDIS_VARIABLE).ok().filter(|url| !url.is_empty() && !own_server) {
            return Ok(Self { url, server: None });
        }
        let path = binaries::system("redis-server").context("no redis-server; on Debian: apt-get install redis-server")?;
        let port = ports::free()?;
        let arguments = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", &folder.display().to_string()];
        let arguments = arguments.map(str::to_owned).to_vec();
        let server = Process::start(Program { name: "redis".to_owned(), path, arguments, ..Program::default() }, folder)?;
        eventually("Redis takes connections", REDIS_START, || async {
            tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            Ok(Some(()))
        })
        .await?;
        Ok(Self { url: format!("redis://127.0.0.1:{port}/"), server: Some(server) })
    }

    /// The server of this test's own, to be stopped and restarted.
    ///
    /// # Errors
    /// When the fleet was started on a shared one.
    pub fn own_server(&self) -> anyhow::Result<&Process> {
        self.server.as_ref().context("this fleet has no Redis of its own: ask for one in its plan")
    }
}
