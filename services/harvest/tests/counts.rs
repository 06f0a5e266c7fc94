//! What runs cost Postgres, in counts: they do not depend on the machine. The benchmark itself does the counting, with its engine, worker and
//! client as processes of their own, on a server that nobody else writes to.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use harvest_persistence::measure::prepare_server;
use harvest_persistence::provision::PgServer;
use serde_json::Value;
use support::{bench, count};

#[tokio::test]
async fn a_lone_run_costs_few_commits_and_statements_and_many_share_theirs() {
    let mut server = PgServer::start().await.unwrap();
    prepare_server(&server.url("postgres")).await.unwrap();
    server.restart().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = server.url("postgres");
    // One shard: how many commits 64 clients share would otherwise depend on how they are spread.
    let lines = bench(folder.path(), &["--postgres", &url, "--workload", "A1", "--concurrency", "1,64", "--seconds", "4", "--shards", "1"]).await;
    let [lone, many] = lines.as_slice() else { panic!("two lines were expected: {lines:?}") };
    assert!(count(lone, "commits_per_run") <= 5.0, "{lone}");
    assert!(count(lone, "statements_per_run") <= 10.0, "{lone}");
    assert!(count(lone, "wal_bytes_per_run") <= 8_000.0, "{lone}");
    assert!(count(many, "commits_per_run") < 1.0, "{many}");
}

#[tokio::test]
async fn the_embedded_store_is_measured_without_postgres() {
    let folder = tempfile::tempdir().unwrap();
    let lines = bench(folder.path(), &["--store", "embedded", "--workload", "W1,W4", "--concurrency", "4", "--seconds", "1"]).await;
    for (line, workload) in lines.iter().zip(["W1", "W4"]) {
        assert_eq!((&line["workload"], &line["commits_per_run"]), (&Value::from(workload), &Value::Null));
        assert!(count(line, "runs_per_s") > 0.0, "{line}");
    }
    assert_eq!(lines.len(), 2);
}
