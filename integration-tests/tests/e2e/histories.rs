//! The committed histories still fit the code: one of each ending of the order sample, and between them every variant of an event.
//!
//! They are what the HTTP API gives out. To make them again after a deliberate change:
//! `cargo nextest run -p harvest-integration-tests --test e2e --run-ignored only -E 'test(export)'`.

use anyhow::Context as _;
use harvest_examples::bank::Bank;
use harvest_examples::order::{self, APPROVE, Approval, BankClient, QUEUE};
use harvest_examples::plan::{Ending, plan};
use harvest_integration_tests::fleet::with_fleet;
use harvest_integration_tests::http::Api;
use harvest_integration_tests::samples::note;
use harvest_integration_tests::{Fleet, Plan, Topology, World, eventually, histories};
use harvest_proto::v1;
use harvest_runtime::SystemClock;
use harvest_sdk::prelude::*;
use harvest_sdk::{WorkflowHandle, WorkflowRegistration};
use harvest_wire::event;
use harvest_wire::json::EventJson;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Every variant there is.
const VARIANTS: [&str; 30] = [
    "ActivityCancelRequested",
    "ActivityCancelled",
    "ActivityCompleted",
    "ActivityFailed",
    "ActivityScheduled",
    "ActivityTimedOut",
    "ChildWorkflowCancelRequested",
    "ChildWorkflowCompleted",
    "ChildWorkflowFailed",
    "ChildWorkflowSpawnedDetached",
    "ChildWorkflowStarted",
    "LocalActivityCompleted",
    "LocalActivityExhausted",
    "LocalActivityFailed",
    "LocalActivityScheduled",
    "MarkerRecorded",
    "SideEffectRecorded",
    "SignalReceived",
    "TimerCancelled",
    "TimerFired",
    "TimerStarted",
    "WorkflowCancelRequested",
    "WorkflowCancelled",
    "WorkflowCompleted",
    "WorkflowContinuedAsNew",
    "WorkflowExecutionTimedOut",
    "WorkflowFailed",
    "WorkflowStarted",
    "WorkflowTaskCompleted",
    "WorkflowTerminated",
];

#[activity(start_to_close = "10s", retry = RetryPolicy::none())]
async fn refuse(_ctx: &ActivityContext) -> Result<(), ActivityFailure> {
    Err(ActivityFailure::non_retryable("Refused", "never"))
}

/// Touches every feature that leaves an event and does not end the run.
#[workflow]
async fn everything(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    let word: String = ctx.receive_signal("begin").await?;
    let taken = (ctx.system_now(), ctx.new_uuid(), ctx.random_u64(), ctx.side_effect("dice", || 4).await?, ctx.patched("gate"));
    let noted = ctx.execute_activity(&note, word).await?;
    let refused = ctx.execute_activity(&refuse, ()).await;
    let nobody = ActivityOptions::new().queue("nobody");
    let late = ctx.execute_activity_with_opts(&note, "late".to_owned(), nobody.clone().schedule_to_start(Duration::from_millis(50))).await;
    let (dropped, unwanted) = (ctx.execute_activity_with_opts(&note, "dropped".to_owned(), nobody), ctx.start_timer("unwanted", Duration::from_secs(3_600)));
    let ward = ctx.spawn_child_workflow(&ends, "cancel".to_owned());
    ctx.timer("pause", Duration::from_millis(100)).await?;
    dropped.cancel();
    unwanted.cancel();
    ward.cancel();
    let (dropped, unwanted, ward) = harvest_sdk::join!(dropped, unwanted, ward);
    let (good, bad) = (ctx.spawn_child_workflow(&ends, "complete".to_owned()), ctx.spawn_child_workflow(&ends, "fail".to_owned()));
    let (good, bad) = harvest_sdk::join!(good, bad);
    ctx.spawn_child_workflow_detached(&ends, "complete".to_owned(), ChildOptions::default())?;
    let failures = [refused.is_err(), late.is_err(), dropped.is_err(), unwanted.is_err(), ward.is_err(), bad.is_err()];
    Ok(format!("{noted} {} {} {failures:?}", taken.3, good?))
}

/// Fails on its first attempt, and for good when it is told so.
#[activity(local = true, retry = RetryPolicy::fixed(2, Duration::from_millis(1)))]
async fn stutter(ctx: &ActivityContext, word: String) -> Result<String, ActivityFailure> {
    if ctx.attempt() == 1 || word == "never" { Err(ActivityFailure::new("Stuttered", "try again")) } else { Ok(word) }
}

/// Runs activities on the spot.
#[workflow]
async fn stammers(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    let said = ctx.execute_activity(&stutter, "hello".to_owned()).await?;
    ctx.timer("breath", Duration::from_millis(10)).await?;
    let never = ctx.execute_activity(&stutter, "never".to_owned()).await;
    Ok(format!("{said} {}", never.is_err()))
}

/// Ends as it is told.
#[workflow]
async fn ends(ctx: &WorkflowContext, how: String) -> Result<String, HarvestError> {
    match how.as_str() {
        "complete" => Ok("complete".to_owned()),
        "continue" => {
            ctx.continue_as_new("complete").await?;
            Ok(String::new())
        }
        "fail" => ctx.execute_activity(&refuse, ()).await.map(|()| String::new()),
        _ => ctx.or_cancelled(ctx.receive_signal("never")).await,
    }
}

fn code() -> Vec<WorkflowRegistration> {
    workflows![order::order, everything, ends, stammers]
}

#[test]
fn every_committed_history_replays_against_todays_code() {
    let files = histories::all().unwrap();
    let mut seen = BTreeSet::new();
    for (name, text) in &files {
        let events = histories::read(text).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        seen.extend(histories::variants(&events));
        histories::replay(events, code()).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
    let expected: BTreeSet<String> = VARIANTS.iter().map(|variant| (*variant).to_owned()).collect();
    assert_eq!(seen, expected);
    for ending in ["shipped", "out-of-stock", "declined", "approval-expired"] {
        assert!(files.iter().any(|(name, _)| *name == format!("order-{ending}.json")), "{ending}");
    }
}

#[test]
fn a_history_of_other_code_is_refused_with_its_place() {
    let (_, text) = histories::all().unwrap().into_iter().find(|(name, _)| name == "order-shipped.json").unwrap();
    // The same history under the name of a workflow that does something else.
    let events = histories::read(&text.replace("\"workflow_type\":\"order\"", "\"workflow_type\":\"everything\"")).unwrap();
    let refused = histories::replay(events, code()).unwrap_err().to_string();
    assert!(refused.contains("non-determinism at event") && refused.contains("reserve"), "{refused}");
}

/// A page of history over HTTP. Payloads stay byte for byte what they are, which an in-between JSON tree would not keep.
#[derive(serde::Deserialize)]
struct Page {
    events: Vec<EventJson>,
    next_event_id: Option<u64>,
}

/// The whole history of a run as the HTTP API gives it out, page by page.
async fn exported<R>(api: &Api, handle: &WorkflowHandle<R>) -> anyhow::Result<Vec<v1::Event>> {
    let (mut events, mut from) = (Vec::new(), Some(1));
    while let Some(first) = from {
        let answer = api.get(&format!("/workflows/{}/history?from_event_id={first}&page_size=10", handle.execution_id())).await?;
        let page: Page = serde_json::from_str(&answer.raw)?;
        for event in page.events {
            events.push(event.into_proto()?);
        }
        from = page.next_event_id;
    }
    Ok(events)
}

async fn save<R>(world: &World, name: &str, handle: &WorkflowHandle<R>) -> anyhow::Result<()> {
    eventually(format!("{name} has ended"), Duration::from_secs(30), || async { Ok((handle.describe().await?.state != "RUNNING").then_some(())) }).await?;
    let events = exported(world.api(), handle).await?;
    let (over_http, over_grpc) = (event::list(events.clone())?, event::list(handle.history().await?)?);
    anyhow::ensure!(over_http == over_grpc, "{name}: HTTP and gRPC give different histories");
    histories::write(name, events)
}

async fn export_orders(fleet: &Arc<Fleet>, world: &World) -> anyhow::Result<()> {
    let bank = Bank::open(&fleet.folder().join("bank.jsonl"))?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let routes = harvest_examples::counter::routes(bank, Duration::ZERO, Arc::new(SystemClock::new()));
    let _bank = harvest_runtime::spawn_owned("bank", async move { axum::serve(listener, routes).await });
    let worker = HarvestBuilder::new()
        .workflows(workflows![order::order])
        .activities(activities![order::reserve, order::release, order::charge, order::refund, order::ship])
        .state(BankClient::new(&url))
        .worker(WorkerConfig::default().with_addresses(fleet.frontends()).with_namespace(world.namespace()).with_queues([QUEUE]))
        .build()?;
    let _worker = harvest_runtime::spawn_owned("orders", worker.run(std::future::pending()));
    for (ending, name) in [
        (Ending::Shipped, "order-shipped"),
        (Ending::OutOfStock, "order-out-of-stock"),
        (Ending::Declined, "order-declined"),
        (Ending::ApprovalExpired, "order-approval-expired"),
    ] {
        let deadline = if ending == Ending::Shipped { 60_000 } else { 300 };
        let planned = plan("exported", deadline).into_iter().find(|planned| planned.ending == ending).context("every ending is planned")?;
        let options = StartOptions::new(&planned.order.order_id).task_queue(QUEUE);
        let handle = world.start_with(&order::order, options, planned.order).await?;
        if ending == Ending::Shipped {
            handle.signal(APPROVE, Approval { by: "the exporter".to_owned() }).await?;
        }
        assert_eq!(world.result(&handle).await?, ending);
        save(world, name, &handle).await?;
    }
    Ok(())
}

async fn export_endings(world: &World) -> anyhow::Result<()> {
    let run = world.start(&everything, "everything", ()).await?;
    run.signal("begin", "hello").await?;
    assert_eq!(world.result(&run).await?, "hello 4 complete [true, true, true, true, true, true]");
    save(world, "everything", &run).await?;
    let stammering = world.start(&stammers, "local-activities", ()).await?;
    save(world, "local-activities", &stammering).await?;
    for (how, name) in [("fail", "failed"), ("continue", "continued-as-new"), ("cancel", "cancelled"), ("terminate", "terminated")] {
        let handle = world.start(&ends, name, how.to_owned()).await?;
        match how {
            "cancel" => handle.cancel("enough").await?,
            "terminate" => handle.terminate("enough").await?,
            _ => {}
        }
        save(world, name, &handle).await?;
    }
    let options = StartOptions::new("timed-out").execution_timeout(Duration::from_millis(300));
    let handle = world.start_with(&ends, options, "wait".to_owned()).await?;
    save(world, "timed-out", &handle).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes the files that the other tests read"]
async fn export_histories() {
    with_fleet(Plan::new(Topology::Dev, "export"), |fleet| async move {
        let world = World::new(&fleet, "export")?;
        world.serve(workflows![everything, ends, stammers], activities![note, refuse, stutter])?;
        export_endings(&world).await?;
        export_orders(&fleet, &world).await
    })
    .await;
}
