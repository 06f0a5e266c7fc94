//! Postgres only: statements that meet each other's locks, serialization failures and deadlocks, and outages that end without a word.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking and owns its tasks")]

#[allow(dead_code, reason = "other tests use the rest of it")]
mod support;

use harvest_ids::{Epoch, Namespace, ShardId, Timestamp, WorkerId};
use harvest_persistence::batch::{Batch, BatchId};
use harvest_persistence::conformance::fixture::{Owner, events, id, run};
use harvest_persistence::control::{ConfigStore, DirectoryStore, LimitsChange, Member, ServiceKind, StoredWorker};
use harvest_persistence::error::{CommitError, StoreError};
use harvest_persistence::postgres::{PgOptions, PgStore, migrate};
use harvest_persistence::provision;
use harvest_persistence::store::ShardStore;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use std::time::{Duration, Instant};
use support::{Fault, Proxy};

const SHARD: ShardId = ShardId(0);
/// What a statement answers when its transaction could not be serialized, and when it was the victim of a deadlock.
const CONFLICTS: [&str; 2] = ["40001", "40P01"];

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

fn member(number: usize) -> Member {
    Member { service: ServiceKind::Matching, process_id: format!("process-{number}"), address: format!("http://127.0.0.1:{number}") }
}

/// Makes every write of a table answer with an SQLSTATE: at once, or when it is to be committed.
async fn refuse_writes(url: &str, table: &str, code: &str, at_commit: bool) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let raise = format!(
        "CREATE OR REPLACE FUNCTION harvest.refuse() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'made to fail' USING ERRCODE = '{code}'; END $$"
    );
    let kind = if at_commit { "CONSTRAINT TRIGGER refuse AFTER" } else { "TRIGGER refuse BEFORE" };
    let when = if at_commit { "DEFERRABLE INITIALLY DEFERRED " } else { "" };
    let trigger = format!("CREATE {kind} INSERT OR UPDATE OR DELETE ON {table} {when}FOR EACH ROW EXECUTE FUNCTION harvest.refuse()");
    connection.execute(AssertSqlSafe(raise)).await.unwrap();
    connection.execute(AssertSqlSafe(trigger)).await.unwrap();
}

async fn accept_writes(url: &str, table: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    connection.execute(AssertSqlSafe(format!("DROP TRIGGER refuse ON {table}"))).await.unwrap();
}

#[tokio::test]
async fn a_batch_that_loses_a_conflict_is_not_committed_and_may_be_sent_again() {
    for code in CONFLICTS {
        for at_commit in [false, true] {
            let url = database().await;
            let store = open(&url).await;
            let mut owner = Owner::of(&store, 0).await;
            refuse_writes(&url, "shard_0.history", code, at_commit).await;
            for _ in 0..3 {
                let outcome = owner.try_commit(&first_run()).await;
                assert!(matches!(&outcome, Err(CommitError::Unavailable(why)) if why.contains(code)), "{code}, at commit: {at_commit}: {outcome:?}");
                assert_eq!(store.load_run(SHARD, id(1)).await.unwrap(), None);
            }
            accept_writes(&url, "shard_0.history").await;
            owner.commit(first_run()).await;
            assert!(store.load_run(SHARD, id(1)).await.unwrap().is_some());
        }
    }
}

#[tokio::test]
async fn a_control_statement_that_loses_a_conflict_is_worth_another_try() {
    let url = database().await;
    let store = open(&url).await;
    for (table, code) in
        ["harvest.member", "harvest.harvest_lease", "harvest.limits", "harvest.worker", "harvest.harvest_shard"].iter().zip(CONFLICTS.iter().cycle())
    {
        for at_commit in [false, true] {
            refuse_writes(&url, table, code, at_commit).await;
            let limits = store.limits().await.unwrap();
            let change = LimitsChange {
                expected: (limits.generation, limits.number),
                document: "{}".to_owned(),
                actor: "a".to_owned(),
                reason: String::new(),
                summary: String::new(),
            };
            let outcome = match *table {
                "harvest.member" => store.check_in(&member(1), 5_000).await.map(drop),
                "harvest.harvest_lease" => store.acquire_lease(SHARD, "a", "http://a", 2_000).await.map(drop),
                "harvest.limits" => store.change_limits(&change).await.map(drop),
                "harvest.worker" => store.report_workers(&[worker(1)], &[], 5_000).await,
                _ => store.take_over(SHARD).await.map(drop),
            };
            assert!(matches!(&outcome, Err(StoreError::Unavailable(why)) if why.contains(code)), "{table} {code}, at commit: {at_commit}: {outcome:?}");
            accept_writes(&url, table).await;
        }
    }
    assert!(store.members().await.unwrap().is_empty());
    assert_eq!(store.epoch(SHARD).await.unwrap(), Epoch(0), "what was not committed has not happened");
}

fn worker(number: usize) -> StoredWorker {
    let worker_id = WorkerId::new(format!("{number:032x}")).unwrap();
    StoredWorker { worker_id, namespace: Namespace::default(), hello: vec![1], last_seen: Timestamp::from_millis(0) }
}

/// After an outage that was longer than announcements hold, all processes find all others expired and come back at the same time.
#[tokio::test]
async fn processes_that_come_back_at_once_do_not_wait_for_each_others_rows() {
    let url = database().await;
    let stores: Vec<PgStore> = futures::future::join_all((0..8).map(|_| open(&url))).await;
    for round in 0..20 {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let all = stores.iter().enumerate().map(|(number, store)| async move { store.announce_member(&member(number), 60_000).await });
        futures::future::try_join_all(all).await.unwrap();
        connection.execute("UPDATE harvest.member SET expires_at = now() - interval '1 minute'").await.unwrap();
        let back = stores.iter().enumerate().map(|(number, store)| async move { store.check_in(&member(number), 60_000).await });
        let back = futures::future::join_all(back).await;
        for members in back {
            assert!(members.is_ok(), "round {round}: {members:?}");
        }
        assert_eq!(stores[0].members().await.unwrap().len(), stores.len(), "round {round}: nobody removed who had just come back");
    }
}

#[tokio::test]
async fn frontends_that_report_workers_at_once_do_not_wait_for_each_others_rows() {
    let url = database().await;
    let stores: Vec<PgStore> = futures::future::join_all((0..6).map(|_| open(&url))).await;
    // Each frontend has its own workers; those of the others look old to it.
    let workers: Vec<Vec<StoredWorker>> = (0..stores.len()).map(|frontend| (0..40).map(|number| worker(frontend * 1_000 + number)).collect()).collect();
    for round in 0..10 {
        let report = |ttl| futures::future::join_all(stores.iter().zip(&workers).map(move |(store, workers)| store.report_workers(workers, &[], ttl)));
        for reported in report(60_000).await {
            reported.unwrap();
        }
        let mut connection = PgConnection::connect(&url).await.unwrap();
        connection.execute("UPDATE harvest.worker SET last_seen = now() - interval '1 hour'").await.unwrap();
        for reported in report(60_000).await {
            assert!(reported.is_ok(), "round {round}: {reported:?}");
        }
        assert_eq!(store_count(&url).await, 240, "round {round}: nobody removed who had just been reported");
    }
}

async fn store_count(url: &str) -> usize {
    open(url).await.workers(60_000).await.unwrap().len()
}

/// The line to Postgres dies without a reset, with more statements on it than there are places.
#[tokio::test]
async fn a_silent_line_costs_no_session_its_place() {
    let url = database().await;
    let proxy = Proxy::before(&url).await;
    let options = PgOptions {
        max_sessions: 2,
        acquire_timeout: Duration::from_millis(500),
        connect_timeout: Duration::from_millis(500),
        statement_timeout: Duration::ZERO,
        ..PgOptions::default()
    };
    let store = PgStore::connect(&proxy.url, options).await.unwrap();
    for round in 0..3 {
        proxy.set(Fault::Silent);
        // More than there are places; some are given up midway by their callers.
        let asked = (0..6).map(|number| {
            let store = store.clone();
            async move {
                let asked = store.epoch(SHARD);
                if number % 2 == 0 {
                    tokio::time::timeout(Duration::from_millis(200), asked).await.unwrap_or(Err(StoreError::Unavailable("given up".to_owned())))
                } else {
                    asked.await
                }
            }
        });
        for outcome in futures::future::join_all(asked).await {
            assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
        }
        proxy.set(Fault::None);
        let healed = Instant::now();
        while store.epoch(SHARD).await.is_err() {
            assert!(healed.elapsed() < Duration::from_secs(10), "round {round}");
        }
        // Both places are there: both are in use at once.
        let (one, two) = tokio::join!(store.epoch(SHARD), store.epoch(SHARD));
        assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    }
}

#[tokio::test]
async fn a_takeover_needs_one_session_only() {
    let url = database().await;
    let store = PgStore::connect(&url, PgOptions { max_sessions: 1, acquire_timeout: Duration::from_millis(500), ..PgOptions::default() }).await.unwrap();
    let mut owner = Owner::of(&store, 0).await;
    owner.commit(first_run()).await;
    let batch = BatchId { shard_id: SHARD, epoch: owner.fence.epoch, batch_seq: 2 };
    assert_eq!(store.settle(batch).await.unwrap().unwrap().batch_seq, 1);
}
