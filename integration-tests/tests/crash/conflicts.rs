//! A database that answers with serialization failures and deadlocks, at the statement and at the commit.

use crate::outages::refusal;
use anyhow::Context as _;
use harvest_integration_tests::eventually::holds;
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::load::Load;
use harvest_integration_tests::samples::{self, echo};
use harvest_integration_tests::store::Stores;
use harvest_integration_tests::{Fleet, Plan, Topology, World};
use harvest_rpc::Reason;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What is written by commits of runs, takeovers, leases, membership, worker reports, limits and acknowledgements.
const TABLES: [&str; 5] = ["harvest_shard", "harvest_lease", "member", "worker", "limits"];

/// Makes so many of a hundred writes of each table lose a conflict, half of them as their statement ends and half as they are committed.
async fn conflicts(fleet: &Fleet, percent: u32) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&fleet.database()?.url).await?;
    let refuse = format!(
        "CREATE OR REPLACE FUNCTION harvest.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF random() * 200 < {percent} THEN RAISE EXCEPTION 'made to fail' USING ERRCODE = (ARRAY['40001', '40P01'])[1 + floor(random() * 2)]; END IF; \
         RETURN NULL; END $$"
    );
    connection.execute(AssertSqlSafe(refuse)).await?;
    for table in TABLES {
        for (name, when) in [("refuse_now", ""), ("refuse_at_commit", "DEFERRABLE INITIALLY DEFERRED")] {
            let drop = format!("DROP TRIGGER IF EXISTS {name} ON harvest.{table}");
            connection.execute(AssertSqlSafe(drop)).await?;
            let create = format!(
                "CREATE CONSTRAINT TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON harvest.{table} {when} FOR EACH ROW EXECUTE FUNCTION harvest.refuse()"
            );
            connection.execute(AssertSqlSafe(create)).await?;
        }
    }
    connection.close().await?;
    Ok(())
}

async fn lost_again_and_again(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let world = World::new(&fleet, "conflicts")?;
    world.serve(samples::workflows(), samples::activities())?;
    Load::new("before", 3).run(&world).await?;
    // One in four.
    conflicts(&fleet, 25).await?;
    let load = Load { longest: Duration::from_secs(150), ..Load::new("p", 40) };
    let (ended, in_load) = (load.ended.clone(), world.clone());
    let running = harvest_runtime::spawn_owned("load", async move { load.run(&in_load).await });
    holds("some purchases have ended", Duration::from_secs(60), || ended.load(Ordering::Relaxed) >= 10).await?;
    let body = serde_json::json!({"max_workflow_execution_timeout_secs": 50_000_000, "wait_secs": 10});
    let changed = world.api().patch("/admin/limits", &body).await?;
    println!("a change of limits among conflicts: {} {}", changed.status, changed.raw);
    anyhow::ensure!(changed.status.is_success() || changed.status.as_u16() == 503, "{changed:?}");
    // Without end: the callers are told so, and nothing dies of it.
    conflicts(&fleet, 200).await?;
    let error = tokio::time::timeout(Duration::from_secs(60), refusal(&world)).await.context("the caller hangs")??;
    println!("a start is told: {error}");
    anyhow::ensure!(error.reason == Reason::Unavailable && error.retry_after.is_some(), "{error:?}");
    conflicts(&fleet, 0).await?;
    let outcome = running.await.context("the load panicked")??;
    println!("{} purchases correct, {} steps repeated", outcome.correct, outcome.repeated);
    Load::new("after", 10).run(&world).await?;
    world.result(&world.start(&echo, "during", "x".to_owned()).await?).await?;
    for name in fleet.process_names() {
        anyhow::ensure!(fleet.process(&name)?.is_running(), "{name} has ended");
    }
    world.audit(&Stores::open(&fleet).await?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_lose_conflicts_are_repeated_whole_and_no_loop_ends() {
    with_fleet(Plan::new(Topology::Double, "conflicts"), lost_again_and_again).await;
}
