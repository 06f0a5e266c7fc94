//! The command against a fake frontend: what it sends, prints, and how it exits.
#![allow(clippy::unwrap_used)] // tests: also in their helpers

use harvest_proto::v1::workflow_service_server::{WorkflowService, WorkflowServiceServer};
use harvest_proto::v1::*;
use harvest_rpc::{Error, Reason, Server};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

const RUN: &str = "00010000-0000-8000-8000-000000000001";

/// Completes runs of type `good`, fails those of type `bad`, never ends those of type `slow`, and knows no other.
#[derive(Clone, Default)]
struct Fake {
    starts: Arc<Mutex<Vec<StartWorkflowRequest>>>,
    signals: Arc<Mutex<Vec<SignalWorkflowRequest>>>,
}

fn not_found() -> Status {
    Error::new(Reason::WorkflowNotFound, "there is no such workflow run").into()
}

#[tonic::async_trait]
impl WorkflowService for Fake {
    async fn start_workflow(&self, request: Request<StartWorkflowRequest>) -> Result<Response<StartWorkflowResponse>, Status> {
        let start = request.into_inner();
        let (workflow_type, workflow_id) = (start.workflow_type.clone(), start.workflow_id.clone());
        if workflow_type == "unknown" {
            return Err(Error::new(Reason::UnknownWorkflowType, "no worker has registered workflow type \"unknown\"").into());
        }
        self.starts.lock().unwrap().push(start);
        let warnings = vec!["no live worker serves task queue \"default\"".into()];
        let state = "RUNNING".into();
        Ok(Response::new(StartWorkflowResponse {
            execution_id: RUN.into(),
            workflow_id,
            workflow_type,
            state,
            started_fresh: true,
            warnings,
            eager_workflow_task: None,
        }))
    }
    async fn get_workflow(&self, _: Request<GetWorkflowRequest>) -> Result<Response<GetWorkflowResponse>, Status> {
        Err(not_found())
    }
    async fn list_workflows(&self, request: Request<ListWorkflowsRequest>) -> Result<Response<ListWorkflowsResponse>, Status> {
        let request = request.into_inner();
        // 300 runs in all, whatever the filter.
        let before: u32 = request.page_token.parse().unwrap_or(0);
        let here = request.page_size.min(300 - before);
        let info = |number| WorkflowInfo { workflow_id: format!("w-{number}\u{1b}[2J"), state: "RUNNING".into(), ..Default::default() };
        let next_page_token = if before + here < 300 { (before + here).to_string() } else { String::new() };
        Ok(Response::new(ListWorkflowsResponse { workflows: (before..before + here).map(info).collect(), next_page_token }))
    }
    async fn get_history(&self, request: Request<GetHistoryRequest>) -> Result<Response<GetHistoryResponse>, Status> {
        let first = request.into_inner().from_event_id;
        let fired = TimerFired { timer_id: "t".into(), started_event_id: 1 };
        let event = Event { event_id: first, at_ms: 1, kind: Some(event::Kind::TimerFired(fired)) };
        let next_event_id = if first < 3 { first + 1 } else { 0 };
        Ok(Response::new(GetHistoryResponse { events: vec![event], next_event_id, execution_id: RUN.into() }))
    }
    async fn get_result(&self, request: Request<GetResultRequest>) -> Result<Response<GetResultResponse>, Status> {
        let execution_id = RUN.to_owned();
        let output = Some(Payload { data: r#"{"total": 7}"#.into(), encoding: String::new() });
        let failure = Some(Failure { message: "declined".into(), error_type: "Declined".into(), ..Default::default() });
        Ok(Response::new(match request.into_inner().workflow.unwrap().workflow_type.as_str() {
            "good" => GetResultResponse { state: "COMPLETED".into(), execution_id, output, ..Default::default() },
            "bad" => GetResultResponse { state: "FAILED".into(), execution_id, failure, ..Default::default() },
            "slow" => GetResultResponse { state: "RUNNING".into(), execution_id, ..Default::default() },
            _ => return Err(not_found()),
        }))
    }
    async fn signal_workflow(&self, request: Request<SignalWorkflowRequest>) -> Result<Response<SignalWorkflowResponse>, Status> {
        self.signals.lock().unwrap().push(request.into_inner());
        Ok(Response::new(SignalWorkflowResponse { signal_delivered: true, execution_id: RUN.into() }))
    }
    async fn query_workflow(&self, request: Request<QueryWorkflowRequest>) -> Result<Response<QueryWorkflowResponse>, Status> {
        Ok(Response::new(QueryWorkflowResponse { result: request.into_inner().args }))
    }
    async fn cancel_workflow(&self, _: Request<CancelWorkflowRequest>) -> Result<Response<CancelWorkflowResponse>, Status> {
        Ok(Response::new(CancelWorkflowResponse { execution_id: RUN.into() }))
    }
    async fn terminate_workflow(&self, _: Request<TerminateWorkflowRequest>) -> Result<Response<TerminateWorkflowResponse>, Status> {
        Err(Error::new(Reason::WorkflowClosed, "the workflow run is closed (COMPLETED)").into())
    }
    async fn pause_workflow(&self, request: Request<PauseWorkflowRequest>) -> Result<Response<PauseWorkflowResponse>, Status> {
        let changed = request.into_inner().longest_ms == Some(3_600_000);
        Ok(Response::new(PauseWorkflowResponse { execution_id: RUN.into(), changed }))
    }
    async fn resume_workflow(&self, _: Request<ResumeWorkflowRequest>) -> Result<Response<ResumeWorkflowResponse>, Status> {
        Ok(Response::new(ResumeWorkflowResponse { execution_id: RUN.into(), changed: false }))
    }
}

struct Fleet {
    fake: Fake,
    address: String,
    stop: CancellationToken,
}

impl Fleet {
    async fn start() -> Self {
        let (fake, stop) = (Fake::default(), CancellationToken::new());
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().add_service(WorkflowServiceServer::new(fake.clone()));
        let address = format!("http://{}", server.address());
        drop(harvest_runtime::spawn("fake", server.serve(stop.clone())));
        Self { fake, address, stop }
    }

    async fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_harvest"));
        command.args(arguments).env_clear().env("HARVEST_ADDRESS", &self.address).stdin(Stdio::null());
        let Output { status, stdout, stderr } = command.output().await.unwrap();
        (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[tokio::test]
async fn a_start_sends_what_was_asked_for_and_prints_the_run() {
    let fleet = Fleet::start().await;
    let (code, stdout, stderr) =
        fleet.run(&["workflow", "start", "good", "--id", "w-1", "--input", "{\"a\": 1}", "--execution-timeout", "90s", "-o", "json"]).await;
    assert_eq!(code, 0, "{stderr}");
    let started: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&started["execution_id"], &started["started_fresh"]), (&RUN.into(), &true.into()));
    assert_eq!(stderr, "warning: no live worker serves task queue \"default\"\n");
    let sent = fleet.fake.starts.lock().unwrap()[0].clone();
    assert_eq!((sent.namespace.as_str(), sent.workflow_id.as_str(), sent.execution_timeout_ms), ("default", "w-1", Some(90_000)));
    assert_eq!((sent.input.unwrap().data, sent.request_id.len()), ("{\"a\": 1}".into(), 32));
}

#[tokio::test]
async fn the_exit_code_of_a_result_says_how_the_workflow_ended() {
    let fleet = Fleet::start().await;
    let result = |kind| ["workflow", "result", "--type", kind, "--id", "w-1", "--wait", "1ms"];
    assert_eq!(fleet.run(&result("good")).await, (0, "{\"total\": 7}\n".into(), String::new()));
    assert_eq!(fleet.run(&result("bad")).await, (4, String::new(), "error: the workflow did not complete successfully: FAILED: declined\n".into()));
    assert_eq!(fleet.run(&result("slow")).await, (4, String::new(), "error: the workflow did not complete successfully: RUNNING\n".into()));
    let (code, _, stderr) = fleet.run(&result("other")).await;
    assert_eq!((code, stderr.as_str()), (3, "error: there is no such workflow run (WORKFLOW_NOT_FOUND)\n"));
}

#[tokio::test]
async fn bad_usage_exits_2_and_refusals_by_their_reason() {
    let fleet = Fleet::start().await;
    assert_eq!(fleet.run(&["workflow", "get"]).await.0, 2);
    assert_eq!(fleet.run(&["workflow", "get", RUN, "--type", "good"]).await.0, 2);
    assert_eq!(fleet.run(&["workflow", "start", "good", "--execution-timeout", "soon"]).await.0, 2);
    let (code, _, stderr) = fleet.run(&["workflow", "start", "good", "--input", "text"]).await;
    assert!(code == 2 && stderr.contains("--input must be JSON"), "{stderr}");
    assert_eq!(fleet.run(&["workflow", "start", "unknown"]).await.0, 3);
    assert_eq!(fleet.run(&["workflow", "terminate", RUN]).await.0, 1);
    assert_eq!(fleet.run(&["workflow", "pause", RUN, "--for", "1h", "--reason", "audit"]).await.1, format!("paused: {RUN}\n"));
    assert_eq!(fleet.run(&["workflow", "resume", RUN]).await.1, format!("was not paused: {RUN}\n"));
    let (code, _, stderr) = fleet.run(&["workflow", "get", RUN, "-o", "json"]).await;
    let refused: serde_json::Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!((code, &refused["reason"]), (3, &"WORKFLOW_NOT_FOUND".into()));
    for empty in [&["start", "good", "--id", ""][..], &["start", "good", "--request-id", ""], &["get", "--type", "good", "--id", ""], &["get", ""]] {
        let (code, _, stderr) = fleet.run(&[&["workflow"], empty].concat()).await;
        assert!(code == 2 && stderr.contains("must not be empty"), "{empty:?}: {stderr}");
    }
    assert!(fleet.fake.starts.lock().unwrap().is_empty());
    let (code, _, stderr) = fleet.run(&["workflow", "list", "--timeout", "584542046y"]).await;
    assert!(code == 2 && stderr.contains("at most 3650 days are allowed"), "{stderr}");
    let (code, _, stderr) = fleet.run(&["workflow", "list", "--address", "http://127.0.0.1:1"]).await;
    assert!(code == 1 && stderr.contains("no frontend answers at http://127.0.0.1:1"), "{stderr}");
}

#[tokio::test]
async fn lists_and_histories_are_read_page_by_page() {
    let fleet = Fleet::start().await;
    let (_, stdout, _) = fleet.run(&["workflow", "list", "--limit", "250", "-o", "json"]).await;
    let list: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((list["workflows"].as_array().unwrap().len(), &list["next_cursor"]), (250, &"250".into()));
    let (_, stdout, stderr) = fleet.run(&["workflow", "list", "--limit", "2"]).await;
    assert!(stdout.contains("WORKFLOW ID") && stdout.contains("w-1") && !stdout.contains('\u{1b}'), "{stdout}");
    assert_eq!(stderr, "more: --cursor 2\n");
    let (_, stdout, _) = fleet.run(&["workflow", "history", RUN, "-o", "json"]).await;
    assert_eq!(harvest_wire::json::decode_history(&stdout).unwrap().len(), 3);
    let (_, stdout, _) = fleet.run(&["workflow", "history", RUN]).await;
    assert!(stdout.contains("TimerFired") && stdout.contains("1970-01-01T00:00:00.001Z"), "{stdout}");
}

#[tokio::test]
async fn signals_queries_and_cancellations_are_sent() {
    let fleet = Fleet::start().await;
    let (code, stdout, _) = fleet.run(&["workflow", "signal", RUN, "--name", "pay", "--payload", "[1]", "--request-id", "r"]).await;
    assert_eq!((code, stdout), (0, format!("delivered to {RUN}\n")));
    let sent = fleet.fake.signals.lock().unwrap()[0].clone();
    assert_eq!((sent.signal_name.as_str(), sent.request_id.as_str(), sent.payload.unwrap().data), ("pay", "r", "[1]".into()));
    assert_eq!(fleet.run(&["workflow", "query", RUN, "--name", "status", "--args", "{\"x\":2}"]).await.1, "{\"x\":2}\n");
    assert_eq!(fleet.run(&["workflow", "cancel", RUN, "--reason", "why not"]).await.1, format!("asked to cancel: {RUN}\n"));
}

#[tokio::test]
async fn output_that_nobody_takes_is_no_panic() {
    let fleet = Fleet::start().await;
    for format in ["json", "table"] {
        let run = |stdout: Stdio| {
            let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_harvest"));
            command.args(["workflow", "list", "--limit", "300", "-o", format]).env_clear().env("HARVEST_ADDRESS", &fleet.address).stdin(Stdio::null());
            command.stdout(stdout).stderr(Stdio::piped());
            async move {
                let output = command.spawn().unwrap().wait_with_output().await.unwrap();
                (output.status.code(), String::from_utf8(output.stderr).unwrap())
            }
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, stderr) = run(writer.into()).await;
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{format}: a closed pipe");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (code, stderr) = run(full.into()).await;
        assert!(code == Some(1) && stderr.contains("the result cannot be written: No space left on device"), "{format}: {stderr}");
    }
}

#[tokio::test]
async fn an_address_that_does_not_speak_grpc_is_named_as_such() {
    let fleet = Fleet::start().await;
    let http = harvest_runtime::ops::bind("127.0.0.1:0".parse().unwrap(), harvest_runtime::Health::new()).await.unwrap();
    let address = format!("http://{}", http.address());
    let _serving = harvest_runtime::spawn_owned("http", http.run(CancellationToken::new()));
    let (code, _, stderr) = fleet.run(&["workflow", "list", "--address", &address]).await;
    assert!(code == 2 && stderr.contains(&format!("{address} does not speak gRPC but HTTP/1.1")), "{stderr}");
}
