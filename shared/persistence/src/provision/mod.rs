//! Postgres for tests: a private server per test process, or the one that `HARVEST_TEST_POSTGRES_URL` names; a database per test.
//!
//! Test support only: no service uses it. Start at [`database`]; tests that kill the server start one of their own, [`PgServer::start`].

mod server;

pub use server::{PgServer, ProvisionError};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use std::str::FromStr;
use tokio::sync::OnceCell;
use uuid::Uuid;

/// Names the maintenance database of a server that tests may use, as a superuser: each test makes a database of its own in it.
pub const SERVER_VARIABLE: &str = "HARVEST_TEST_POSTGRES_URL";

/// The server of this process. It ends with the process, however that ends.
static SERVER: OnceCell<PgServer> = OnceCell::const_new();

/// The URL of a new, empty database.
///
/// # Errors
/// [`ProvisionError`] when there is no Postgres to be had; its text says what to install.
pub async fn database() -> Result<String, ProvisionError> {
    let server = match std::env::var(SERVER_VARIABLE) {
        Ok(url) => url,
        Err(_) => SERVER.get_or_try_init(PgServer::start).await?.url("postgres"),
    };
    create_database(&server).await
}

/// Part of a name that nobody else has.
#[expect(clippy::disallowed_methods, reason = "test support; names of folders and databases decide nothing")]
fn unique() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Creates a database beside `server`, the URL of any database of the server, and returns its URL.
///
/// # Errors
/// [`ProvisionError::Database`] when the server refuses.
pub async fn create_database(server: &str) -> Result<String, ProvisionError> {
    let name = format!("harvest_test_{}", unique());
    let options = PgConnectOptions::from_str(server)?;
    let mut connection = PgConnection::connect_with(&options).await?;
    // template1 may be in use by somebody else at this moment; template0 never is.
    connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE template0"))).await?;
    connection.close().await?;
    Ok(database_url(server, &name))
}

/// The URL of another database of the server whose URL is `server`.
pub(crate) fn database_url(server: &str, name: &str) -> String {
    let (base, query) = server.split_once('?').map_or((server, None), |(base, query)| (base, Some(query)));
    let host = base.find("://").map_or(0, |at| at + 3);
    let root = base[host..].find('/').map_or(base, |at| &base[..host + at]);
    format!("{root}/{name}{}", query.map(|query| format!("?{query}")).unwrap_or_default())
}
