//! Postgres only: frozen owners, lost connections, a killed server, migrations.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking and owns its tasks")]

mod support;

use harvest_ids::{Epoch, ShardId};
use harvest_persistence::batch::{Batch, BatchId};
use harvest_persistence::conformance::fixture::{Owner, events, id, run};
use harvest_persistence::error::{CommitError, StoreError};
use harvest_persistence::postgres::{MigrateError, PgOptions, PgStore, migrate, writer_options};
use harvest_persistence::provision::{self, PgServer};
use harvest_persistence::store::{Fence, ShardStore};
use sqlx::{Connection, Executor, PgConnection, Row};
use std::time::{Duration, Instant};
use support::{Fault, Proxy};

const SHARD: ShardId = ShardId(0);

async fn database() -> String {
    let url = provision::database().await.unwrap();
    migrate(&url, 2).await.unwrap();
    url
}

async fn open(url: &str) -> PgStore {
    PgStore::connect(url, PgOptions::default()).await.unwrap()
}

fn first_run() -> Batch {
    Batch { runs_new: vec![run(1)], history: vec![events(1, 1, 1, b"x")], ..Batch::default() }
}

/// An owner of shard 0 whose writer goes through the proxy.
async fn owner_behind(proxy: &Proxy, store: &PgStore) -> Owner {
    let fence = store.take_over(SHARD).await.unwrap();
    let writer = open(&proxy.url).await.open_writer(SHARD, fence.epoch).await.unwrap();
    Owner { shard: SHARD, fence, writer }
}

/// Waits until the server has executed the owner's batch and waits for the Sync that does not come.
async fn executed_without_sync(url: &str, epoch: Epoch) {
    let mut watcher = PgConnection::connect(url).await.unwrap();
    let query = "SELECT FROM pg_stat_activity WHERE application_name = $1 AND backend_xid IS NOT NULL AND wait_event = 'ClientRead'";
    let application = format!("harvest:shard:0:epoch:{epoch}");
    let began = Instant::now();
    while sqlx::query(query).bind(&application).fetch_optional(&mut watcher).await.unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(30), "the batch was not executed");
    }
}

#[tokio::test]
async fn an_owner_frozen_between_execute_and_sync_does_not_stop_a_takeover() {
    let url = database().await;
    let store = open(&url).await;
    let mut proxy = Proxy::before(&url).await;
    let mut owner = owner_behind(&proxy, &store).await;
    let old = owner.fence;
    let before = proxy.sent();
    proxy.set(Fault::HoldSync);
    let commit = tokio::spawn(async move { owner.try_commit(&first_run()).await });
    proxy.one_more('S', &before).await;
    executed_without_sync(&url, old.epoch).await;
    let began = Instant::now();
    let fence = store.take_over(SHARD).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(fence, Fence { epoch: old.epoch.next(), batch_seq: old.batch_seq });
    let outcome = commit.await.unwrap();
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
    assert_eq!(store.load_run(SHARD, id(1)).await.unwrap(), None);
    assert_eq!(store.settle(BatchId { shard_id: SHARD, epoch: old.epoch, batch_seq: 1 }).await.unwrap(), None);
}

#[tokio::test]
async fn an_owner_with_an_open_transaction_on_the_fence_does_not_stop_a_takeover() {
    let url = database().await;
    let store = open(&url).await;
    let fence = store.take_over(SHARD).await.unwrap();
    let mut frozen = PgConnection::connect_with(&writer_options(url.parse().unwrap(), &PgOptions::default(), SHARD, fence.epoch)).await.unwrap();
    frozen.execute("BEGIN").await.unwrap();
    frozen.execute("UPDATE harvest_shard SET batch_seq = 9 WHERE shard_id = 0").await.unwrap();
    assert_eq!(store.take_over(SHARD).await.unwrap(), Fence { epoch: fence.epoch.next(), batch_seq: 0 });
    assert!(frozen.execute("COMMIT").await.is_err());
    let other = store.take_over(ShardId(1)).await.unwrap();
    assert_eq!(other.epoch, Epoch(1), "the other shard is not concerned");
}

#[tokio::test]
async fn a_batch_whose_request_was_lost_is_settled_as_not_landed() {
    let url = database().await;
    let store = open(&url).await;
    let proxy = Proxy::before(&url).await;
    let mut owner = owner_behind(&proxy, &store).await;
    proxy.set(Fault::CutRequest);
    let outcome = owner.try_commit(&first_run()).await;
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
    let outcome = owner.try_commit(&first_run()).await;
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "a broken writer stays broken: {outcome:?}");
    let batch = BatchId { shard_id: SHARD, epoch: owner.fence.epoch, batch_seq: 1 };
    assert_eq!(store.settle(batch).await.unwrap(), Some(Fence { epoch: batch.epoch.next(), batch_seq: 0 }));
    assert_eq!(store.load_run(SHARD, id(1)).await.unwrap(), None);
}

#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_settled_as_landed() {
    let url = database().await;
    let store = open(&url).await;
    let proxy = Proxy::before(&url).await;
    let mut owner = owner_behind(&proxy, &store).await;
    proxy.set(Fault::CutAnswer);
    let outcome = owner.try_commit(&first_run()).await;
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
    let batch = BatchId { shard_id: SHARD, epoch: owner.fence.epoch, batch_seq: 1 };
    assert_eq!(store.settle(batch).await.unwrap(), Some(Fence { epoch: batch.epoch.next(), batch_seq: 1 }));
    assert!(store.load_run(SHARD, id(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_commit_is_one_statement_and_one_round_trip() {
    let url = database().await;
    let proxy = Proxy::before(&url).await;
    let mut owner = owner_behind(&proxy, &open(&url).await).await;
    let before = proxy.sent();
    owner.commit(first_run()).await;
    owner.commit(Batch { history: vec![events(1, 2, 1, b"y")], ..Batch::default() }).await;
    let after = proxy.sent();
    let sent = |kind: char| after.get(&kind).copied().unwrap_or(0) - before.get(&kind).copied().unwrap_or(0);
    assert_eq!([sent('P'), sent('Q'), sent('B'), sent('E'), sent('S')], [0, 0, 2, 2, 2], "before {before:?}, after {after:?}");
}

#[tokio::test]
async fn a_batch_locks_the_tables_of_its_shard_only() {
    let url = database().await;
    let mut owner = Owner::of(&open(&url).await, 0).await;
    let application = format!("harvest:shard:0:epoch:{}", owner.fence.epoch);
    let mut holder = PgConnection::connect(&url).await.unwrap();
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    // The batch waits for its fence row while we look at what it has locked.
    let mut held = holder.begin().await.unwrap();
    held.execute("SELECT FROM harvest.harvest_shard WHERE shard_id = 0 FOR UPDATE").await.unwrap();
    let commit = tokio::spawn(async move { owner.try_commit(&first_run()).await });
    let locks = "SELECT DISTINCT n.nspname || '.' || c.relname FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_class c ON c.oid = l.relation \
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE a.application_name = $1 AND a.wait_event_type = 'Lock' AND l.locktype = 'relation'";
    let tables = loop {
        let rows = sqlx::query(locks).bind(&application).fetch_all(&mut watcher).await.unwrap();
        if !rows.is_empty() {
            break rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>();
        }
        assert!(!commit.is_finished(), "the batch did not wait for the fence row");
    };
    held.rollback().await.unwrap();
    commit.await.unwrap().unwrap();
    let foreign: Vec<_> = tables.iter().filter(|name| !name.starts_with("shard_0.") && !name.starts_with("harvest.harvest_shard")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(tables.contains(&"shard_0.run".to_owned()), "{tables:?}");
}

#[tokio::test]
async fn sessions_that_are_ended_or_given_up_leave_their_places() {
    let url = database().await;
    let options = PgOptions { max_sessions: 2, acquire_timeout: Duration::from_secs(2), ..PgOptions::default() };
    let store = PgStore::connect(&url, options).await.unwrap();
    let mut other = PgConnection::connect(&url).await.unwrap();
    for _ in 0..5 {
        store.epoch(SHARD).await.unwrap();
        other
            .execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'harvest' AND datname = current_database()")
            .await
            .unwrap();
        let lost = store.epoch(SHARD).await;
        assert!(matches!(lost, Err(StoreError::Unavailable(_)) | Ok(_)), "{lost:?}");
    }
    let mut held = other.begin().await.unwrap();
    held.execute("LOCK TABLE harvest.harvest_shard").await.unwrap();
    for _ in 0..5 {
        let mut given_up = store.epoch(SHARD);
        assert!(futures::poll!(given_up.as_mut()).is_pending());
    }
    held.rollback().await.unwrap();
    store.epoch(SHARD).await.unwrap();
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9_of_the_server() {
    let mut server = PgServer::start().await.unwrap();
    let url = provision::create_database(&server.url("postgres")).await.unwrap();
    migrate(&url, 2).await.unwrap();
    let store = open(&url).await;
    let mut owner = Owner::of(&store, 0).await;
    owner.commit(first_run()).await;
    server.kill9().await.unwrap();
    let outcome = owner.try_commit(&Batch::default()).await;
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
    assert!(matches!(store.epoch(SHARD).await, Err(StoreError::Unavailable(_))));
    server.restart().await.unwrap();
    let batch = BatchId { shard_id: SHARD, epoch: owner.fence.epoch, batch_seq: owner.fence.batch_seq };
    assert_eq!(store.settle(batch).await.unwrap().unwrap().batch_seq, 1);
    assert!(store.load_run(SHARD, id(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn migrating_again_does_nothing_and_another_number_of_shards_is_refused() {
    let url = provision::database().await.unwrap();
    assert!(matches!(PgStore::connect(&url, PgOptions::default()).await, Err(StoreError::Refused(why)) if why.contains("harvest migrate")));
    let (one, two) = tokio::join!(migrate(&url, 3), migrate(&url, 3));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.shards, two.shards, one.shards_created + two.shards_created), (3, 3, 3));
    assert_eq!((one.applied.len(), two.applied.len()), if one.shards_created > 0 { (3, 0) } else { (0, 3) });
    let refused = migrate(&url, 4).await.unwrap_err();
    assert!(matches!(refused, MigrateError::ShardCount { existing: 3, asked: 4 }), "{refused}");
    assert!(matches!(migrate(&url, 0).await, Err(MigrateError::Shards(0))));
    assert!(matches!(migrate(&url, 4097).await, Err(MigrateError::Shards(4097))));
    assert!(matches!(migrate("postgres://127.0.0.1:1/none", 1).await, Err(MigrateError::Store(StoreError::Unavailable(_)))));
}
