//! Bad input: each a typed error with its field and what is allowed, on gRPC and on HTTP, and nothing stored.

use harvest_integration_tests::World;
use harvest_integration_tests::http::Answer;
use harvest_integration_tests::samples::echo;
use harvest_proto::v1;
use harvest_proto::v1::workflow_service_client::WorkflowServiceClient;
use harvest_sdk::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use tonic::{Code, Status};

/// An id whose first 16 bits are slot 4096.
const SLOT_TOO_LARGE: &str = "10000000-0000-8000-8000-000000000000";
/// One more byte than a name may have.
const LONG: usize = 256;
/// Ten years and a bit, in ms.
const TOO_LONG_MS: u64 = 315_360_000_001;

/// A body of a start over HTTP that must be refused, with the status and the field that the answer names.
struct BadStart {
    what: &'static str,
    body: Vec<u8>,
    status: u16,
    field: &'static str,
}

fn bad_starts() -> Vec<BadStart> {
    let bad = |what, body: Value, status, field| BadStart { what, body: body.to_string().into_bytes(), status, field };
    let raw = |what, body: &[u8], field| BadStart { what, body: body.to_vec(), status: 400, field };
    vec![
        raw("no JSON", b"{\"workflow_id\": ", "body"),
        raw("an array", b"[]", "body"),
        raw("invalid UTF-8", b"{\"workflow_id\": \"a\xff\"}", "body"),
        bad("an extra field", json!({"workflow_id": "x", "colour": "red"}), 400, "colour"),
        bad("a number as id", json!({"workflow_id": 7}), 400, "workflow_id"),
        bad("an id that is too long", json!({"workflow_id": "x".repeat(LONG)}), 400, "workflow_id"),
        bad("U+0000 in an id", json!({"workflow_id": "a\u{0}b"}), 400, "workflow_id"),
        bad("U+0000 in a queue", json!({"workflow_id": "x", "queue": "a\u{0}b"}), 400, "queue"),
        bad("a queue that is too long", json!({"workflow_id": "x", "queue": "q".repeat(LONG)}), 400, "queue"),
        bad("a timeout of 0", json!({"workflow_id": "x", "execution_timeout_secs": 0}), 400, "execution_timeout_secs"),
        bad("a negative timeout", json!({"workflow_id": "x", "execution_timeout_secs": -5}), 400, "execution_timeout_secs"),
        bad("a timeout beyond ten years", json!({"workflow_id": "x", "execution_timeout_secs": 315_360_001}), 400, "execution_timeout_secs"),
        bad("a timeout in words", json!({"workflow_id": "x", "execution_timeout_secs": "long"}), 400, "execution_timeout_secs"),
        bad("an sla of 0", json!({"workflow_id": "x", "sla_secs": 0}), 400, "sla_secs"),
        bad("a negative sla", json!({"workflow_id": "x", "sla_secs": -1}), 400, "sla_secs"),
        bad("an sla past what nanoseconds hold", json!({"workflow_id": "x", "sla_secs": 9_223_372_037_u64}), 400, "sla_secs"),
        bad("an sla past the year 9999", json!({"workflow_id": "x", "sla_secs": 253_402_300_800_u64}), 400, "sla_secs"),
        bad("an sla of i64::MAX", json!({"workflow_id": "x", "sla_secs": i64::MAX}), 400, "sla_secs"),
        bad("an sla of u64::MAX", json!({"workflow_id": "x", "sla_secs": u64::MAX}), 400, "sla_secs"),
        bad("a timeout of u64::MAX", json!({"workflow_id": "x", "execution_timeout_secs": u64::MAX}), 400, "execution_timeout_secs"),
        bad("an unknown policy", json!({"workflow_id": "x", "conflict_policy": "maybe"}), 400, "conflict_policy"),
        bad("an input that is too large", json!({"workflow_id": "x", "input": "i".repeat(2 * 1024 * 1024)}), 413, "input"),
        bad("a request id that is too long", json!({"workflow_id": "x", "request_id": "r".repeat(LONG)}), 400, "request_id"),
    ]
}

fn refused(what: &str, answer: &Answer, status: u16, field: &str) {
    assert_eq!(answer.status.as_u16(), status, "{what}: {answer:?}");
    assert_eq!(answer.text("field"), field, "{what}: {answer:?}");
    assert!(!answer.text("error").is_empty() && !answer.text("reason").is_empty(), "{what}: {answer:?}");
}

async fn http(world: &World) -> anyhow::Result<()> {
    let api = world.api();
    for bad in bad_starts() {
        refused(bad.what, &api.post_bytes("/workflows/echo/start", bad.body).await?, bad.status, bad.field);
    }
    let large = api.declare("/workflows/echo/start", 4 * 1024 * 1024).await?;
    assert!(large.starts_with("HTTP/1.1 413") && large.contains("\"field\":\"body\""), "{large}");
    let unknown = api.post("/workflows/ecko/start", &json!({"workflow_id": "x"})).await?;
    assert_eq!((unknown.status.as_u16(), unknown.text("reason")), (404, "UNKNOWN_WORKFLOW_TYPE"), "{unknown:?}");
    assert!(unknown.text("error").contains("echo"), "it names the nearest type: {unknown:?}");
    for (path, field) in [
        (format!("/workflows/{SLOT_TOO_LARGE}"), "execution_id"),
        ("/workflows/not-a-uuid/history".to_owned(), "execution_id"),
        ("/workflows?page_size=201".to_owned(), "page_size"),
        ("/workflows?page_size=-1".to_owned(), "page_size"),
        ("/workflows?state=SLEEPING".to_owned(), "state"),
        ("/workflows?colour=red".to_owned(), "colour"),
        (format!("/workflows/by-id/{}/x", "t".repeat(LONG)), "workflow_name"),
    ] {
        refused(&path, &api.get(&path).await?, 400, field);
    }
    let missing = api.get("/workflows/by-id/echo/never-started").await?;
    assert_eq!((missing.status.as_u16(), missing.text("reason")), (404, "WORKFLOW_NOT_FOUND"), "{missing:?}");
    let route = api.get("/nonsense").await?;
    assert_eq!((route.status.as_u16(), route.text("reason")), (404, "UNKNOWN_ROUTE"), "{route:?}");
    Ok(())
}

async fn http_on_a_run(world: &World, execution_id: &str) -> anyhow::Result<()> {
    let api = world.api();
    let large = json!({"payload": "s".repeat(256 * 1024)});
    refused("a signal that is too large", &api.post(&format!("/workflows/{execution_id}/signal/word"), &large).await?, 413, "payload");
    let long = format!("/workflows/{execution_id}/signal/{}", "n".repeat(LONG));
    refused("a signal name that is too long", &api.post(&long, &json!({})).await?, 400, "signal");
    let nul = format!("/workflows/{execution_id}/signal/a%00b");
    refused("U+0000 in a signal name", &api.post(&nul, &json!({})).await?, 400, "signal");
    let reason = json!({"reason": "r".repeat(1025)});
    for verb in ["cancel", "terminate"] {
        let answer = api.post(&format!("/workflows/{execution_id}/{verb}"), &reason).await?;
        assert!([400, 413].contains(&answer.status.as_u16()) && answer.text("field") == "reason", "{verb}: {answer:?}");
    }
    refused("a wait in words", &api.get(&format!("/workflows/{execution_id}/result?wait=soon")).await?, 400, "wait");
    refused("a wait that is too long", &api.get(&format!("/workflows/{execution_id}/result?wait=2h")).await?, 400, "wait");
    Ok(())
}

/// A start that is refused for what `spoil` does to a good one.
async fn bad_grpc_start(world: &World, what: &str, field: &str, spoil: impl FnOnce(&mut v1::StartWorkflowRequest)) -> anyhow::Result<()> {
    let mut request = v1::StartWorkflowRequest {
        namespace: world.namespace().to_owned(),
        workflow_type: "echo".to_owned(),
        workflow_id: "x".to_owned(),
        ..v1::StartWorkflowRequest::default()
    };
    spoil(&mut request);
    let mut service = WorkflowServiceClient::new(world.channel().await?);
    let status = service.start_workflow(request).await.expect_err(what);
    names_field(what, &status, field);
    Ok(())
}

fn names_field(what: &str, status: &Status, field: &str) {
    assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status:?}");
    assert!(status.message().contains(field), "{what}: the message names no {field}: {status:?}");
    // google.rpc.ErrorInfo and BadRequest ride along.
    let details = String::from_utf8_lossy(status.details());
    assert!(details.contains("google.rpc.ErrorInfo") && details.contains(field), "{what}: {status:?}");
}

async fn grpc(world: &World, execution_id: &str) -> anyhow::Result<()> {
    let payload = |size: usize| Some(v1::Payload { data: vec![b'1'; size].into(), encoding: "json".to_owned() });
    bad_grpc_start(world, "an empty type", "workflow_type", |it| it.workflow_type = String::new()).await?;
    bad_grpc_start(world, "a long id", "workflow_id", |it| it.workflow_id = "x".repeat(LONG)).await?;
    bad_grpc_start(world, "U+0000", "workflow_id", |it| it.workflow_id = "a\u{0}".to_owned()).await?;
    bad_grpc_start(world, "a timeout of 0", "execution_timeout_ms", |it| it.execution_timeout_ms = Some(0)).await?;
    bad_grpc_start(world, "a long timeout", "execution_timeout_ms", |it| it.execution_timeout_ms = Some(TOO_LONG_MS)).await?;
    bad_grpc_start(world, "an unknown policy", "conflict_policy", |it| it.conflict_policy = 99).await?;
    bad_grpc_start(world, "a task timeout of 1 ms", "workflow_task_timeout_ms", |it| it.workflow_task_timeout_ms = Some(1)).await?;
    bad_grpc_start(world, "a large input", "input", |it| it.input = payload(2 * 1024 * 1024 + 1)).await?;

    let mut service = WorkflowServiceClient::new(world.channel().await?);
    let reference =
        |execution_id: &str| v1::WorkflowRef { namespace: world.namespace().to_owned(), execution_id: execution_id.to_owned(), ..Default::default() };
    let slot = service.get_workflow(v1::GetWorkflowRequest { workflow: Some(reference(SLOT_TOO_LARGE)) }).await.expect_err("slot 4096");
    names_field("slot 4096", &slot, "execution_id");
    let nothing = service.get_workflow(v1::GetWorkflowRequest { workflow: None }).await.expect_err("no reference");
    names_field("no reference", &nothing, "workflow");
    let both = v1::WorkflowRef { workflow_type: "echo".to_owned(), workflow_id: "x".to_owned(), ..reference(execution_id) };
    let both = service.get_workflow(v1::GetWorkflowRequest { workflow: Some(both) }).await.expect_err("two references");
    names_field("two references", &both, "execution_id");
    let signal = v1::SignalWorkflowRequest {
        workflow: Some(reference(execution_id)),
        signal_name: "word".to_owned(),
        payload: payload(256 * 1024 + 1),
        request_id: String::new(),
    };
    names_field("a large signal", &service.signal_workflow(signal).await.expect_err("too large"), "payload");
    let unknown = v1::StartWorkflowRequest { namespace: world.namespace().to_owned(), workflow_type: "ecco".to_owned(), ..Default::default() };
    let unknown = service.start_workflow(unknown).await.expect_err("an unknown type");
    assert_eq!(unknown.code(), Code::NotFound, "{unknown:?}");
    assert!(unknown.message().contains("echo"), "it names the nearest type: {unknown:?}");
    let list = v1::ListWorkflowsRequest { namespace: world.namespace().to_owned(), page_size: 201, ..Default::default() };
    names_field("a large page", &service.list_workflows(list).await.expect_err("too large"), "page_size");
    Ok(())
}

pub async fn every_malformed_call_is_a_typed_error_that_names_its_field(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![echo, listening], activities![])?;
    let handle = world.start(&listening, "run", ()).await?;
    http(&world).await?;
    http_on_a_run(&world, handle.execution_id()).await?;
    grpc(&world, handle.execution_id()).await?;
    assert_eq!(world.list("page_size=50").await?, ["run"]);
    handle.signal("word", "fine").await?;
    assert_eq!(world.result(&handle).await?, "fine");
    assert_eq!(world.variants(&handle).await?.iter().filter(|variant| *variant == "SignalReceived").count(), 1);
    Ok(())
}

#[workflow]
async fn listening(ctx: &WorkflowContext) -> Result<String, HarvestError> {
    ctx.receive_signal("word").await
}

pub async fn nothing_of_a_refused_call_is_stored(world: Arc<World>) -> anyhow::Result<()> {
    world.serve(workflows![echo], activities![])?;
    world.result(&world.start(&echo, "good", "fine".to_owned()).await?).await?;
    for bad in bad_starts() {
        let answer = world.api().post_bytes("/workflows/echo/start", bad.body).await?;
        assert!(answer.status.is_client_error(), "{}: {answer:?}", bad.what);
    }
    assert_eq!(world.list("page_size=50").await?, ["good"]);
    Ok(())
}
