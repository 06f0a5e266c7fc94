//! HTTP and JSON, good and bad.

use crate::support::history::RUN;
use crate::support::{Fleet, soon};
use harvest_ids::{EventId, ExecutionId, Namespace, Slot, TaskQueue, Timestamp, WorkflowId, WorkflowType};
use harvest_persistence::batch::{RunMutable, RunRow};
use harvest_proto::v1;
use harvest_rpc::{Error, Reason};
use harvest_workflow_core::state::Status;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

struct Answer {
    status: u16,
    headers: reqwest::header::HeaderMap,
    body: Value,
}

async fn send(request: reqwest::RequestBuilder) -> Answer {
    let response = soon(request.send()).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = soon(response.bytes()).await.unwrap();
    let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("{status}: {bytes:?}")) };
    Answer { status, headers, body }
}

async fn call(fleet: &Fleet, method: Method, path: &str, body: impl Into<String>) -> Answer {
    let request = Client::new().request(method, format!("{}{path}", fleet.http));
    send(request.header("content-type", "application/json").body(body.into())).await
}

async fn post(fleet: &Fleet, path: &str, body: Value) -> Answer {
    call(fleet, Method::POST, path, body.to_string()).await
}

async fn get(fleet: &Fleet, path: &str) -> Answer {
    call(fleet, Method::GET, path, "").await
}

fn path(rest: &str) -> String {
    format!("/workflows/{RUN}{rest}")
}

#[tokio::test]
async fn a_start_answers_201_then_200_for_the_same_id() {
    let fleet = Fleet::start().await;
    fleet.config.register("order", "default");
    let body = json!({"workflow_id": "o-1", "input": {"total": 7}, "execution_timeout_secs": 1.5, "request_id": "of-body"});
    let request = Client::new().post(format!("{}/workflows/order/start", fleet.http)).header("idempotency-key", "of-header").json(&body);
    let fresh = send(request).await;
    assert_eq!(fresh.status, 201);
    let expected = json!({"execution_id": RUN, "workflow_name": "order", "workflow_id": "o-1", "state": "RUNNING", "started_fresh": true});
    assert_eq!(fresh.body, expected);
    assert_eq!(fresh.headers["x-harvest-execution-id"], RUN);
    let sent = fleet.history.starts.lock().unwrap()[0].clone();
    assert_eq!((sent.request_id.as_str(), sent.execution_timeout_ms), ("of-header", Some(1_500)));
    assert_eq!(sent.input.unwrap().data, r#"{"total":7}"#);
    let existing = post(&fleet, "/workflows/order/start", json!({"workflow_id": "o-1", "queue": "lonely"})).await;
    assert_eq!((existing.status, &existing.body["started_fresh"]), (200, &json!(false)));
    assert_eq!(existing.body["warnings"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_conflict_asked_for_answers_409_with_the_open_run() {
    let fleet = Fleet::start().await;
    fleet.config.register("order", "default");
    fleet.history.refuse([Error::new(Reason::AlreadyRunning, "a run exists").with("existing_execution_id", RUN).with("existing_state", "RUNNING")]);
    let conflict = post(&fleet, "/workflows/order/start", json!({"workflow_id": "o-1", "conflict_policy": "fail"})).await;
    assert_eq!(conflict.status, 409);
    let expected = json!({"error": "a run exists", "reason": "ALREADY_RUNNING", "existing_execution_id": RUN, "existing_state": "RUNNING"});
    assert_eq!(conflict.body, expected);
}

#[tokio::test]
async fn bad_bodies_are_refused_with_the_field_and_what_is_allowed() {
    let fleet = Fleet::start().await;
    fleet.config.register("order", "default");
    let cases = [
        (r#"{"workflow_id": 7}"#, "workflow_id", "workflow_id must be a string"),
        (r#"{"colour": 1}"#, "colour", "field \"colour\" is not known; allowed are workflow_id, input, queue, request_id,"),
        (r#"{"execution_timeout_secs": "soon"}"#, "execution_timeout_secs", "numbers of seconds from 0.001 to 315360000 (10 years)"),
        (r#"{"execution_timeout_secs": 0}"#, "execution_timeout_secs", "numbers of seconds from 0.001"),
        (r#"{"execution_timeout_secs": 0.0009}"#, "execution_timeout_secs", "numbers of seconds from 0.001"),
        (r#"{"execution_timeout_secs": -1}"#, "execution_timeout_secs", "numbers of seconds from 0.001"),
        (r#"{"execution_timeout_secs": 1e300}"#, "execution_timeout_secs", "numbers of seconds from 0.001"),
        (r#"{"workflow_task_timeout_secs": 0.5}"#, "workflow_task_timeout_secs", "allowed are 1000 ms to 10 minutes"),
        (r#"{"workflow_id": "a\u0000b"}"#, "workflow_id", "workflow_id contains U+0000"),
        (r#"{"queue": "a\u0000b"}"#, "queue", "queue contains U+0000"),
        (r#"{"conflict_policy": "sometimes"}"#, "conflict_policy", "allowed are use_existing, fail"),
        (r#"{"workflow_id": "#, "body", "the body must be a JSON object"),
        (r#"{"workflow_id": "a", "input": 1, "workflow_id": "b"}"#, "workflow_id", "field \"workflow_id\" is given twice"),
        (r#"{"workflow_id": ""}"#, "workflow_id", "workflow_id must not be empty; leave it out instead"),
        (r#"{"request_id": ""}"#, "request_id", "request_id must not be empty; leave it out instead"),
        (r#"[1]"#, "body", "the body must be a JSON object"),
    ];
    for (body, field, text) in cases {
        let refused = call(&fleet, Method::POST, "/workflows/order/start", body).await;
        assert_eq!((refused.status, &refused.body["field"]), (400, &json!(field)), "{body}: {}", refused.body);
        assert!(refused.body["error"].as_str().unwrap().contains(text), "{body}: {}", refused.body);
        assert_eq!(refused.body["reason"], "INVALID_ARGUMENT");
    }
    assert!(fleet.history.calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_too_large_or_not_text_is_refused() {
    let fleet = Fleet::start().await;
    fleet.config.register("order", "default");
    let url = format!("{}/workflows/order/start", fleet.http);
    let large = post(&fleet, "/workflows/order/start", json!({"input": "x".repeat(2 * 1024 * 1024)})).await;
    assert_eq!((large.status, &large.body["field"], &large.body["reason"]), (413, &json!("input"), &json!("PAYLOAD_TOO_LARGE")));
    let larger = post(&fleet, "/workflows/order/start", json!({"input": "x".repeat(3 * 1024 * 1024)})).await;
    assert_eq!((larger.status, &larger.body["field"]), (413, &json!("body")), "{}", larger.body);
    let long_id = post(&fleet, "/workflows/order/start", json!({"workflow_id": "x".repeat(300)})).await;
    assert_eq!((long_id.status, &long_id.body["error"]), (400, &json!("workflow_id has 300 bytes; at most 255 are allowed")));
    let invalid = send(Client::new().post(&url).header("content-type", "application/json").body(vec![b'{', b'"', 0xff, b'"', b'}'])).await;
    assert_eq!((invalid.status, &invalid.body["error"]), (400, &json!("the body is not valid UTF-8")));
    let xml = send(Client::new().post(&url).header("content-type", "text/xml").body("<a/>")).await;
    assert_eq!((xml.status, &xml.body["reason"]), (415, &json!("UNSUPPORTED_MEDIA_TYPE")));
    for (header, value) in [("content-encoding", "gzip"), ("content-type", "application/json; charset=utf-16")] {
        let encoded = send(Client::new().post(&url).header(header, value).body("{}")).await;
        assert_eq!((encoded.status, &encoded.body["reason"]), (415, &json!("UNSUPPORTED_MEDIA_TYPE")), "{header}: {value}");
    }
    let plain = Client::new().post(&url).header("content-type", "application/json; charset=UTF-8").header("content-encoding", "identity").body("{}");
    assert_eq!(send(plain).await.status, 201);
    let namespace = send(Client::new().post(&url).header("x-harvest-namespace", "").json(&json!({}))).await;
    assert_eq!((namespace.status, &namespace.body["field"]), (400, &json!("x-harvest-namespace")));
    let path = get(&fleet, "/workflows/by-id/order/%ff").await;
    assert_eq!((path.status, &path.body["field"]), (400, &json!("path")));
}

#[tokio::test]
async fn unknown_types_routes_methods_and_ids_say_what_is_wrong() {
    let fleet = Fleet::start().await;
    fleet.config.register("order", "default");
    let unknown = post(&fleet, "/workflows/ordr/start", json!({})).await;
    assert_eq!((unknown.status, &unknown.body["reason"], &unknown.body["field"]), (404, &json!("UNKNOWN_WORKFLOW_TYPE"), &json!("workflow_name")));
    assert!(unknown.body["error"].as_str().unwrap().ends_with("did you mean order?"), "{}", unknown.body);
    assert_eq!(get(&fleet, "/nothing").await.body["reason"], "UNKNOWN_ROUTE");
    let method = call(&fleet, Method::DELETE, "/workflows", "").await;
    assert_eq!((method.status, &method.body["reason"]), (405, &json!("METHOD_NOT_ALLOWED")));
    let bad = get(&fleet, "/workflows/not-a-uuid").await;
    assert_eq!((bad.status, &bad.body["field"]), (400, &json!("execution_id")));
    let parameter = get(&fleet, "/workflows?colour=red").await;
    assert_eq!((parameter.status, &parameter.body["field"]), (400, &json!("colour")));
    let parameter = post(&fleet, "/workflows/order/start?colour=red", json!({})).await;
    assert_eq!((parameter.status, &parameter.body["field"]), (400, &json!("colour")));
    let cursor = get(&fleet, "/workflows?cursor=x").await.body;
    assert_eq!((&cursor["field"], &cursor["error"]), (&json!("cursor"), &json!("cursor does not decode: it is not the next_cursor of an earlier page")));
    assert_eq!(get(&fleet, "/workflows?state=LOST").await.body["field"], "state");
    assert_eq!(get(&fleet, "/workflows?limit=201").await.body["error"], "limit is 201; allowed are 1 to 200");
    assert_eq!(get(&fleet, "/workflows?page_size=201").await.body["error"], "page_size is 201; allowed are 1 to 200");
    fleet.history.refuse([Error::new(Reason::WorkflowNotFound, "there is no such workflow run")]);
    assert_eq!(get(&fleet, &path("")).await.status, 404);
}

#[tokio::test]
async fn a_run_is_described_by_its_id_and_by_its_business_key() {
    let fleet = Fleet::start().await;
    for path in [path(""), "/workflows/by-id/order/o%2F1".to_owned()] {
        let run = get(&fleet, &path).await;
        assert_eq!((run.status, &run.body["started_at"], &run.body["completed_at"]), (200, &json!("2026-11-30T15:14:00.123Z"), &Value::Null), "{}", run.body);
        assert_eq!(run.headers["x-harvest-execution-id"], RUN);
    }
    let history = get(&fleet, &path("/history?from_event_id=9&page_size=1")).await;
    let event = json!({"event_id": 9, "at_ms": 5, "type": "WorkflowCompleted", "data": {"output": {"total": 7}}});
    assert_eq!(history.body, json!({"execution_id": RUN, "events": [event], "next_event_id": 10}));
}

#[tokio::test]
async fn runs_are_listed_by_pages() {
    let fleet = Fleet::start().await;
    let empty = get(&fleet, "/workflows?state=FAILED&workflow_name=order&page_size=2").await;
    assert_eq!(empty.body, json!({"workflows": [], "next_cursor": null}));
    {
        let filters = fleet.runs.filters.lock().unwrap();
        assert_eq!((filters[0].limit, filters[0].status.unwrap().as_str(), filters[0].namespace.as_str()), (3, "FAILED", "default"));
    }
    fleet.runs.rows.lock().unwrap().extend((1..=3).map(row));
    let page = get(&fleet, "/workflows?page_size=2").await;
    assert_eq!(page.body["workflows"].as_array().unwrap().len(), 2);
    assert_eq!(page.body["workflows"][0]["nd_block"]["nd_block_reason"], "TimerMismatch");
    let cursor = page.body["next_cursor"].as_str().unwrap();
    assert_eq!(get(&fleet, &format!("/workflows?page_size=3&cursor={cursor}")).await.body["next_cursor"], Value::Null);
    let filters = fleet.runs.filters.lock().unwrap();
    assert_eq!(filters[2].after, Some((Timestamp::from_millis(2), row(2).execution_id)));
}

fn row(number: i64) -> RunRow {
    let execution_id = ExecutionId::new(Slot::new(1).unwrap(), Timestamp::from_millis(number), 7);
    RunRow {
        execution_id,
        namespace: Namespace::default(),
        workflow_type: WorkflowType::new("order").unwrap(),
        workflow_id: WorkflowId::new(number.to_string()).unwrap(),
        first_execution_id: execution_id,
        parent_execution_id: None,
        task_queue: TaskQueue::default(),
        started_at: Timestamp::from_millis(number),
        execution_timeout_ms: None,
        sla_ms: Some(2_000),
        mutable: RunMutable {
            status: Status::Running,
            closed_at: None,
            last_event: EventId(3),
            continued_as: None,
            blocked_at: Some(Timestamp::from_millis(9)),
            blocked_reason: Some("TimerMismatch".into()),
            paused_at: Some(Timestamp::from_millis(5)),
            sla_deadline_at: Some(Timestamp::from_millis(2_003)),
            sla_breached_at: None,
        },
    }
}

#[tokio::test]
async fn a_result_answers_204_while_running_and_200_when_there_is_one() {
    let fleet = Fleet::start().await;
    let set = |result| *fleet.history.result.lock().unwrap() = result;
    set(v1::GetResultResponse { state: "RUNNING".into(), execution_id: RUN.into(), ..Default::default() });
    let running = get(&fleet, &path("/result?wait=10ms")).await;
    assert_eq!((running.status, &running.body, running.headers["retry-after"].to_str().unwrap()), (204, &Value::Null, "1"));
    let output = Some(v1::Payload { data: "[1]".into(), encoding: String::new() });
    set(v1::GetResultResponse { state: "COMPLETED".into(), execution_id: RUN.into(), output, closed_at_ms: 1, ..Default::default() });
    let done = get(&fleet, &path("/result")).await;
    assert_eq!(done.body, json!({"execution_id": RUN, "state": "COMPLETED", "output": [1], "completed_at": "1970-01-01T00:00:00.001Z"}));
    let failure = Some(v1::Failure { message: "no".into(), error_type: "Declined".into(), ..Default::default() });
    set(v1::GetResultResponse { state: "FAILED".into(), execution_id: RUN.into(), failure, closed_at_ms: 1, ..Default::default() });
    let failed = get(&fleet, "/workflows/by-id/order/1/result").await;
    assert_eq!(failed.body["error"], json!({"message": "no", "error_type": "Declined", "non_retryable": false}));
    let long = get(&fleet, &path("/result?wait=2h")).await;
    assert_eq!((long.status, &long.body["field"]), (400, &json!("wait")));
    assert_eq!(get(&fleet, &path("/result?wait=soon")).await.body["field"], "wait");
}

#[tokio::test]
async fn signals_queries_and_ends_reach_the_run() {
    let fleet = Fleet::start().await;
    let signal = post(&fleet, &path("/signal/pay"), json!({"payload": {"by": "card"}, "request_id": "r-1"})).await;
    assert_eq!((signal.status, signal.body), (200, json!({"signal_delivered": true, "execution_id": RUN})));
    {
        let sent = fleet.history.signals.lock().unwrap();
        assert_eq!((sent[0].signal_name.as_str(), sent[0].request_id.as_str()), ("pay", "r-1"));
        assert_eq!(sent[0].payload.as_ref().unwrap().data, r#"{"by":"card"}"#);
    }
    let large = post(&fleet, &path("/signal/pay"), json!({"payload": "x".repeat(256 * 1024)})).await;
    assert_eq!((large.status, &large.body["field"]), (413, &json!("payload")));
    assert_eq!(post(&fleet, &path("/query/status"), json!({"args": [1, 2]})).await.body, json!({"result": [1, 2]}));
    let slow = post(&fleet, &path("/query/status"), json!({"timeout_secs": 61})).await;
    assert_eq!((slow.status, &slow.body["field"]), (400, &json!("timeout_secs")));
    assert_eq!(slow.body["error"], "timeout_secs is 61; allowed are numbers of seconds from 0 to 60");
    assert_eq!(get(&fleet, &path("/query/status?timeout=1s")).await.body, json!({"result": null}));
    fleet.history.refuse([Error::new(Reason::QueryTimeout, "no worker answered the query in time")]);
    assert_eq!(get(&fleet, &path("/query/status")).await.status, 408);
    assert_eq!(post(&fleet, &path("/cancel"), json!({"reason": "changed my mind"})).await.body, json!({"cancel_requested": true, "execution_id": RUN}));
    assert_eq!(post(&fleet, &path("/terminate"), json!({})).await.body, json!({"terminated": true, "execution_id": RUN}));
    let long = post(&fleet, &path("/cancel"), json!({"reason": "x".repeat(2_000)})).await;
    assert_eq!((long.status, &long.body["field"]), (400, &json!("reason")));
}

#[tokio::test]
async fn an_unavailable_fleet_answers_503_with_when_to_try_again() {
    let fleet = Fleet::start().await;
    fleet.history.refuse([Error::new(Reason::Internal, "boom")]);
    let internal = get(&fleet, &path("")).await;
    assert_eq!((internal.status, internal.body), (500, json!({"error": "boom", "reason": "INTERNAL"})));
    let mut busy = Error::new(Reason::LimitReached, "max_unread_signals reached").with("limit", "max_unread_signals");
    busy.retry_after = Some(std::time::Duration::from_millis(1_200));
    fleet.history.refuse([busy]);
    let limited = post(&fleet, &path("/signal/pay"), json!({})).await;
    assert_eq!((limited.status, limited.headers["retry-after"].to_str().unwrap()), (429, "2"));
    assert_eq!(limited.body["limit"], "max_unread_signals");
}

#[tokio::test]
async fn operators_read_and_change_limits_and_see_the_fleet() {
    let fleet = Fleet::start().await;
    let limits = get(&fleet, "/admin/limits").await;
    assert_eq!(
        limits.body,
        json!({"limits": {"max_workflow_execution_timeout_secs": 3600, "max_workflow_chain_timeout_secs": null}, "version": {"generation": 1, "number": 4}})
    );
    let changed = call(&fleet, Method::PATCH, "/admin/limits", r#"{"max_workflow_execution_timeout_secs": null, "reason": "INC-1"}"#).await;
    assert_eq!((changed.status, &changed.body["pending"], &changed.body["acknowledged"]), (200, &json!([2]), &json!(3)));
    assert_eq!(fleet.config.patches.lock().unwrap()[0].update_mask, ["max_workflow_execution_timeout_ms"]);
    let refused = call(&fleet, Method::PATCH, "/admin/limits", r#"{"max_workflow_execution_timeout_secs": 0.001}"#).await;
    assert_eq!((refused.status, &refused.body["field"]), (400, &json!("max_workflow_execution_timeout_secs")));
    let bad = [(r#"{"max_workflow_execution_timeout_secs": 1, "wait_secs": 11}"#, "wait_secs"), ("{}", "max_workflow_execution_timeout_secs")];
    for (body, field) in bad {
        let refused = call(&fleet, Method::PATCH, "/admin/limits", body).await;
        assert_eq!((refused.status, &refused.body["field"]), (400, &json!(field)), "{}", refused.body);
    }
    assert_eq!(call(&fleet, Method::PATCH, "/admin/limits", r#"{"max_workflow_execution_timeout_secs": 60, "wait_secs": 0}"#).await.status, 200);
    assert_eq!(fleet.config.patches.lock().unwrap().last().unwrap().wait_ms, Some(0));
    assert_eq!(get(&fleet, "/shards").await.body["shards"].as_array().unwrap().len(), 4);
    assert_eq!(get(&fleet, "/workers").await.body, json!({"workers": []}));
    assert_eq!(get(&fleet, "/health").await.body, json!({"status": "ready"}));
    assert_eq!(soon(Client::new().get(format!("{}/health/live", fleet.http)).send()).await.unwrap().status(), 200);
    let metrics = soon(Client::new().get(fleet.http.replace("/api/harvest", "/metrics")).send()).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("harvest_rpc_requests_total{"), "{metrics}");
    assert!(metrics.contains("GET /api/harvest/admin/limits"), "{metrics}");
}

/// Sends a head and half a body, and waits until the body is being read.
async fn half_a_body(fleet: &Fleet) -> TcpStream {
    let address = fleet.http.strip_prefix("http://").unwrap().strip_suffix("/api/harvest").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST /api/harvest/workflows/order/start HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = [0; 25];
    soon(stream.read_exact(&mut line)).await.unwrap();
    assert_eq!(line, *b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"{\"workflow_id\": ").await.unwrap();
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut reply = String::new();
    soon(stream.read_to_string(&mut reply)).await.unwrap();
    reply
}

#[tokio::test]
async fn half_a_body_is_answered_408_when_the_rest_does_not_come() {
    let fleet = Fleet::start_with(&[("HTTP_BODY_TIMEOUT_MS", "100")]).await;
    let reply = rest(half_a_body(&fleet).await).await;
    assert!(reply.starts_with("HTTP/1.1 408") && reply.contains("the body did not arrive within 100 ms"), "{reply}");
}

#[tokio::test]
async fn half_a_body_does_not_hold_the_shutdown() {
    let fleet = Fleet::start_with(&[("DRAIN_TIMEOUT_MS", "600000")]).await;
    let stream = half_a_body(&fleet).await;
    fleet.shutdown.cancel();
    let reply = rest(stream).await;
    assert!(reply.starts_with("HTTP/1.1 503") && reply.contains("retry-after: 1") && reply.contains("UNAVAILABLE"), "{reply}");
    soon(fleet.running).await.unwrap();
}

#[tokio::test]
async fn calls_in_flight_are_bounded_by_their_bytes_whichever_way_they_come() {
    let fleet = Fleet::start_with(&[("LIMITS__MAX_REQUEST_BYTES", "16777216")]).await;
    fleet.config.register("order", "default");
    *fleet.history.frozen.lock().unwrap() = true;
    let start = |number: usize| {
        let data = format!("\"{}\"", "x".repeat(2_000_000)).into();
        let input = Some(v1::Payload { data, encoding: String::new() });
        let request = v1::StartWorkflowRequest { workflow_type: "order".into(), workflow_id: number.to_string(), input, ..Default::default() };
        let mut client = fleet.workflows();
        async move { client.start_workflow(request).await }
    };
    let mut waiting = Vec::new();
    for number in 0..8 {
        let (called, before) = (fleet.history.called.clone(), fleet.history.calls_of("start_workflow").len());
        let notified = called.notified();
        waiting.push(harvest_runtime::spawn_owned("start", start(number)));
        soon(notified).await;
        assert_eq!(fleet.history.calls_of("start_workflow").len(), before + 1);
    }
    let refused: Error = soon(start(8)).await.unwrap_err().into();
    assert_eq!((refused.reason, refused.metadata["limit"].as_str()), (Reason::Overloaded, "limits.max_request_bytes"));
    assert!(refused.retry_after.is_some());
    let refused = post(&fleet, "/workflows/order/start", json!({"input": "x".repeat(1_000_000)})).await;
    assert_eq!((refused.status, &refused.body["limit"]), (429, &json!("limits.max_request_bytes")));
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(get(&fleet, "/shards").await.status, 200, "what is small finds room");
    drop(waiting);
    *fleet.history.frozen.lock().unwrap() = false;
    soon(async { while start(9).await.is_err() {} }).await;
}
