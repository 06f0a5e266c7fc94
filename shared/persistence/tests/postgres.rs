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

/// No call needs a second session while it has one: a pool that is all in use would hang otherwise.
mod with_one_session {
    use super::{PgOptions, PgStore, SHARDS, Subject, conformance_suite, migrate, provision};

    async fn subject() -> Subject {
        let url = provision::database().await.expect("a test database");
        migrate(&url, SHARDS).await.expect("the database can be migrated");
        Subject::new(PgStore::connect(&url, PgOptions { max_sessions: 1, ..PgOptions::default() }).await.expect("the store can be opened"))
    }

    conformance_suite!(subject().await);
}
