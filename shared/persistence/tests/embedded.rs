//! The conformance suite on the embedded store, in memory and in a file, and what a file is for.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use harvest_ids::{ShardId, Timestamp};
use harvest_persistence::batch::Batch;
use harvest_persistence::conformance::fixture::{Owner, id, run};
use harvest_persistence::conformance::{SHARDS, Subject};
use harvest_persistence::control::{DirectoryStore, Member, ServiceKind};
use harvest_persistence::embedded::{EmbeddedStore, OpenError, ShardsError};
use harvest_persistence::error::CommitError;
use harvest_persistence::store::ShardStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

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

fn one_run(number: u64) -> Batch {
    Batch { runs_new: vec![run(number)], ..Batch::default() }
}

#[tokio::test]
async fn a_file_keeps_its_runs_and_gives_back_the_leases_of_a_process_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harvest.db");
    let store = EmbeddedStore::open(&path).unwrap();
    store.migrate(2).await.unwrap();
    Owner::of(&store, 1).await.commit(one_run(1)).await;
    assert!(store.acquire_lease(ShardId(1), "first", "http://first", 600_000).await.unwrap());
    store.announce_member(&Member { service: ServiceKind::History, process_id: "first".into(), address: "http://first".into() }, 600_000).await.unwrap();
    drop(store);
    let store = EmbeddedStore::open(&path).unwrap();
    assert_eq!(store.migrate(2).await.unwrap(), 0);
    assert_eq!(store.members().await.unwrap(), []);
    assert!(store.acquire_lease(ShardId(1), "second", "http://second", 600_000).await.unwrap());
    assert!(store.load_run(ShardId(1), id(1)).await.unwrap().is_some());
    assert_eq!(store.take_over(ShardId(1)).await.unwrap().batch_seq, 1);
}

#[tokio::test]
async fn a_file_in_use_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harvest.db");
    let store = EmbeddedStore::open(&path).unwrap();
    let refused = EmbeddedStore::open(&path).err().unwrap();
    assert!(matches!(&refused, OpenError::InUse(name) if *name == path), "{refused}");
    drop(store);
    EmbeddedStore::open(&path).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_to_a_file_in_use_is_refused_like_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let [path, link, early] = ["harvest.db", "link.db", "early.db"].map(|name| folder.path().join(name));
    // Also a link that was there before the file.
    std::os::unix::fs::symlink(&path, &early).unwrap();
    let store = EmbeddedStore::open(&early).unwrap();
    std::os::unix::fs::symlink("harvest.db", &link).unwrap();
    for other in [&path, &link, &early] {
        let refused = EmbeddedStore::open(other).err().unwrap();
        assert!(matches!(&refused, OpenError::InUse(name) if name == other), "{refused}");
    }
    drop(store);
    EmbeddedStore::open(&link).unwrap();
}

#[cfg(unix)]
#[test]
fn what_cannot_be_a_store_is_refused_by_its_own_name_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(EmbeddedStore::open("/dev/null"), Err(OpenError::NotAFile(_))));
    assert!(!std::path::Path::new("/dev/null.lock").exists());
    assert!(matches!(EmbeddedStore::open(folder.path()), Err(OpenError::NotAFile(_))));
    let missing = folder.path().join("missing/harvest.db");
    assert!(EmbeddedStore::open(&missing).err().unwrap().to_string().contains("missing/harvest.db cannot be opened"));
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "not a database at all, but long enough to be looked at as one").unwrap();
    let refused = EmbeddedStore::open(&text).err().unwrap();
    assert!(matches!(&refused, OpenError::Database { path, .. } if *path == text), "{refused}");
}

#[tokio::test]
async fn another_number_of_shards_and_a_newer_schema_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("harvest.db");
    let store = EmbeddedStore::open(&path).unwrap();
    assert!(matches!(store.migrate(0).await, Err(ShardsError::Shards(0))));
    assert_eq!(store.migrate(4).await.unwrap(), 4);
    assert!(matches!(store.migrate(8).await, Err(ShardsError::ShardCount { existing: 4, asked: 8 })));
    drop(store);
    rusqlite::Connection::open(&path).unwrap().execute("INSERT INTO schema_version (version) VALUES (99)", []).unwrap();
    assert!(matches!(EmbeddedStore::open(&path), Err(OpenError::Newer { found: 99, .. })));
}

#[tokio::test]
async fn commits_of_all_shards_at_once_succeed_and_a_poisoned_one_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path().join("harvest.db")).unwrap();
    store.migrate(16).await.unwrap();
    let commits = (0..16u32).map(|shard| {
        let store = store.clone();
        async move {
            let mut owner = Owner::of(&store, shard).await;
            let mut outcomes = Vec::new();
            for number in 1..=20 {
                // Shard 3 tries the same run again and again.
                let number = if shard == 3 { 1 } else { number };
                outcomes.push(owner.try_commit(&one_run(number)).await);
            }
            (shard, outcomes)
        }
    });
    for (shard, outcomes) in futures::future::join_all(commits).await {
        let good = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let poisoned = outcomes.iter().filter(|outcome| matches!(outcome, Err(CommitError::Poisoned(_)))).count();
        assert_eq!((good, poisoned), if shard == 3 { (1, 19) } else { (20, 0) }, "shard {shard}: {outcomes:?}");
    }
}

#[tokio::test]
async fn a_commit_given_up_midway_must_be_settled_first() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path().join("harvest.db")).unwrap();
    store.migrate(1).await.unwrap();
    let mut owner = Owner::of(&store, 0).await;
    let batch = owner.next_batch();
    {
        let new = one_run(1);
        let mut given_up = owner.writer.commit(batch, &new);
        assert!(futures::poll!(given_up.as_mut()).is_pending());
    }
    assert!(matches!(owner.try_commit(&one_run(2)).await, Err(CommitError::Unknown(_))));
    let settled = store.settle(batch).await.unwrap().unwrap();
    assert_eq!(settled.batch_seq == 1, store.load_run(ShardId(0), id(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn leases_run_on_the_clock_that_was_given() {
    let now = Arc::new(AtomicI64::new(1_000));
    let clock = now.clone();
    let store = EmbeddedStore::in_memory_with(Arc::new(move || Timestamp::from_millis(clock.load(Ordering::Relaxed)))).unwrap();
    store.migrate(1).await.unwrap();
    assert!(store.acquire_lease(ShardId(0), "a", "http://a", 2_000).await.unwrap());
    now.store(2_999, Ordering::Relaxed);
    assert_eq!(store.leases().await.unwrap()[0].remaining_ms, 1);
    assert!(!store.acquire_lease(ShardId(0), "b", "http://b", 2_000).await.unwrap());
    now.store(3_000, Ordering::Relaxed);
    assert!(store.acquire_lease(ShardId(0), "b", "http://b", 2_000).await.unwrap());
}
