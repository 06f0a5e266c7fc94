//! The conformance suite on the embedded store, in memory and in a file, and what a file is for.

use harvest_persistence::conformance::{SHARDS, Subject};
use harvest_persistence::embedded::EmbeddedStore;

mod memory {
    use super::{EmbeddedStore, SHARDS, Subject};

    async fn subject() -> Subject {
        let store = EmbeddedStore::in_memory().unwrap();
        assert_eq!(store.migrate(SHARDS).await.unwrap(), SHARDS);
        Subject::new(store)
    }

    harvest_persistence::conformance_suite!(subject().await);
}

mod file {
    use super::{EmbeddedStore, SHARDS, Subject};

    async fn subject(folder: &tempfile::TempDir) -> Subject {
        let store = EmbeddedStore::open(folder.path().join("harvest.db")).unwrap();
        assert_eq!(store.migrate(SHARDS).await.unwrap(), SHARDS);
        Subject::new(store)
    }

    harvest_persistence::conformance_suite!(subject(&tempfile::tempdir().unwrap()).await);
}
