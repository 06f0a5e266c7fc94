//! The benchmark's hot spots, small: what they say about the engine does not depend on how many there are.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use harvest_persistence::measure::prepare_server;
use harvest_persistence::provision::PgServer;
use serde_json::Value;
use support::{bench, count};

#[tokio::test]
async fn hot_spots_lose_nothing_keep_their_order_and_load_no_herd() {
    let mut server = PgServer::start().await.unwrap();
    prepare_server(&server.url("postgres")).await.unwrap();
    server.restart().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = server.url("postgres");
    let sizes = ["--runs", "300", "--clients", "150", "--minutes", "0.05", "--closed-runs", "2000", "--tasks", "10000", "--per-run", "50"];
    let arguments = ["--postgres", &url, "--workload", "storm,soak,asleep,backlog", "--concurrency", "8", "--seconds", "2"];
    let lines = bench(folder.path(), &[arguments.as_slice(), &sizes].concat()).await;
    let [storm, soak, asleep, backlog] = lines.as_slice() else { panic!("four lines were expected: {lines:?}") };

    assert_eq!(count(&storm["details"], "runs"), 300.0, "{storm}");
    assert_eq!(storm["details"]["failed"], Value::Object(serde_json::Map::new()), "{storm}");

    let soak_details = &soak["details"];
    assert_eq!((soak_details["tenths"].as_array().unwrap().len(), &soak_details["closed_runs"]), (10, &Value::from(2_000)), "{soak}");
    assert!(soak_details["growth_percent"]["memory"]["engine"].is_number(), "{soak}");

    // Runs that sleep are left to the store by a new owner; the few that it reads are those that other workloads left with something to do.
    assert!(count(&asleep["details"], "runs_loaded") < 100.0, "{asleep}");
    assert_eq!(count(&asleep["details"], "shards_killed"), 4.0, "{asleep}");

    // A window of offers is on its way at a time; within it tasks overtake one another.
    assert_eq!(count(&backlog["details"], "not_oldest"), 0.0, "{backlog}");
    assert!(count(&backlog["details"], "most_places_early") <= 1_000.0, "{backlog}");
}
