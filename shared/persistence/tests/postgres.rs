//! The conformance suite on Postgres.

use harvest_persistence::conformance::{SHARDS, Subject};
use harvest_persistence::postgres::{PgOptions, PgStore, migrate};
use harvest_persistence::{conformance_suite, provision};

async fn subject() -> Subject {
    let url = provision::database().await.expect("a test database");
    migrate(&url, SHARDS).await.expect("the database can be migrated");
    Subject::new(PgStore::connect(&url, PgOptions::default()).await.expect("the store can be opened"))
}

conformance_suite!(subject().await);
