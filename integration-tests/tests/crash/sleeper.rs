//! Calls to an owner while it is frozen. They wait in its socket, are read when it wakes, and must not be answered from what it remembers.

use anyhow::Context as _;
use harvest_ids::{Attempt, Epoch, EventId, ExecutionId, WorkerId};
use harvest_integration_tests::Fleet;
use harvest_integration_tests::store::Fences;
use harvest_proto::internal::v1::history_service_client::HistoryServiceClient;
use harvest_proto::internal::v1::{
    CancelWorkflowCall, CloseActivityCall, DeliverMessagesCall, GetResultCall, GetWorkflowCall, SignalWorkflowCall, StartWorkflowCall,
};
use harvest_proto::v1;
use harvest_rpc::{Error, Reason};
use harvest_runtime::OwnedTask;
use harvest_workflow_core::input::TaskToken;
use harvest_workflow_core::message::{Message, MessageBody};
use harvest_workflow_core::record::Dispatch;
use std::time::Duration;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// How long a woken owner may take to answer or to break the connection.
const ANSWER: Duration = Duration::from_secs(30);

/// What the calls came to: what was asked, and the refusal; no refusal when it was answered.
type Answers = Vec<(&'static str, Option<Status>)>;

/// A connection to an owner, made while it lives, and what was asked over it.
pub struct Sleeper {
    name: String,
    shard_id: u32,
    channel: Channel,
    asking: Vec<OwnedTask<Answers>>,
}

impl Sleeper {
    /// Connects to the owner of a shard.
    pub async fn connect(fleet: &Fleet, name: &str, shard_id: u32) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(fleet.address(name)?)?.connect().await?;
        Ok(Self { name: name.to_owned(), shard_id, channel, asking: Vec::new() })
    }

    /// Sends a read, a look at the result, a signal named `word` and a start of the type `waiting`: all about the same shard.
    pub fn ask(&mut self, reference: v1::WorkflowRef) {
        self.asking.push(harvest_runtime::spawn_owned("ask", ask(self.channel.clone(), self.shard_id, reference)));
    }

    /// Sends a read, a cancellation, the answer to an activity, and another run's message: all about a run that was started in its absence, so
    /// that it has never heard of it.
    pub fn ask_about_news(&mut self, reference: v1::WorkflowRef, run: ExecutionId) {
        self.asking.push(harvest_runtime::spawn_owned("ask about news", ask_about_news(self.channel.clone(), self.shard_id, reference, run)));
    }

    /// After it was woken: waits for what it says. Nothing may be answered, unless the shard has come back to it meanwhile: its epoch, which was
    /// `epoch` when it fell asleep, has been raised by another and then by it.
    pub async fn must_be_refused(self, fences: &Fences, epoch: i64) -> anyhow::Result<()> {
        anyhow::ensure!(!self.asking.is_empty(), "nothing was asked");
        let answers = tokio::time::timeout(ANSWER, futures::future::try_join_all(self.asking)).await.context("the woken owner answers nothing")??;
        for (what, refusal) in answers.into_iter().flatten() {
            match refusal {
                Some(status) => {
                    let error = Error::from(status);
                    println!("{what}: {error}");
                    let nothing_told = matches!(error.reason, Reason::ShardNotOwned | Reason::Unavailable | Reason::Overloaded | Reason::Cancelled);
                    anyhow::ensure!(nothing_told, "{what} was refused for what the sleeper remembers: {error}");
                }
                None => {
                    let now = fences.shards().await?[&i32::try_from(self.shard_id)?].epoch;
                    anyhow::ensure!(now >= epoch + 2, "{what} was answered by {}, which had lost its shard: epoch {epoch}, now {now}", self.name);
                }
            }
        }
        Ok(())
    }
}

async fn ask(channel: Channel, shard_id: u32, reference: v1::WorkflowRef) -> Answers {
    let mut client = HistoryServiceClient::new(channel);
    let (mut get, mut result, mut signal) = (client.clone(), client.clone(), client.clone());
    let workflow = Some(reference.clone());
    let read = get.get_workflow(GetWorkflowCall { shard_id, request: Some(v1::GetWorkflowRequest { workflow: workflow.clone() }) });
    let outcome = result.get_result(GetResultCall { shard_id, request: Some(v1::GetResultRequest { workflow: workflow.clone(), wait_ms: 0 }) });
    let late = v1::SignalWorkflowRequest { workflow, signal_name: "word".to_owned(), request_id: "late".to_owned(), payload: None };
    let write = signal.signal_workflow(SignalWorkflowCall { shard_id, request: Some(late) });
    let again = v1::StartWorkflowRequest {
        namespace: reference.namespace,
        workflow_type: "waiting".to_owned(),
        workflow_id: "started-late".to_owned(),
        ..v1::StartWorkflowRequest::default()
    };
    let start = client.start_workflow(StartWorkflowCall { shard_id, request: Some(again), declared: None });
    let (read, outcome, write, start) = tokio::join!(read, outcome, write, start);
    vec![("a read", read.err()), ("a result", outcome.err()), ("a signal", write.err()), ("a start", start.err())]
}

async fn ask_about_news(channel: Channel, shard_id: u32, reference: v1::WorkflowRef, run: ExecutionId) -> Answers {
    let mut client = HistoryServiceClient::new(channel);
    let (mut get, mut cancel, mut close) = (client.clone(), client.clone(), client.clone());
    let workflow = Some(reference);
    let read = get.get_workflow(GetWorkflowCall { shard_id, request: Some(v1::GetWorkflowRequest { workflow: workflow.clone() }) });
    let request = v1::CancelWorkflowRequest { workflow, request_id: "late-cancel".to_owned(), ..v1::CancelWorkflowRequest::default() };
    let cancelled = cancel.cancel_workflow(CancelWorkflowCall { shard_id, request: Some(request) });
    let worker_id = WorkerId::new("0123456789abcdef0123456789abcdef").expect("it is a name");
    let dispatch = Dispatch { epoch: Epoch(1), sequence: 1, worker_id: worker_id.clone() };
    let token = harvest_wire::token::encode(&TaskToken { execution_id: run, activity_id: Some(EventId(3)), attempt: Attempt(1), dispatch });
    let outcome = Some(v1::close_activity_request::Outcome::Released(v1::Released {}));
    let request = v1::CloseActivityRequest { task_token: token, worker_id: worker_id.to_string(), outcome, decision_ahead: None };
    let closed = close.close_activity(CloseActivityCall { shard_id, request: Some(request) });
    let message = Message { source: run, target: run, body: MessageBody::CancelChild { reason: "late".to_owned() } };
    let delivered = client.deliver_messages(DeliverMessagesCall { shard_id, messages: vec![harvest_wire::message::to_proto(&message)] });
    let (read, cancelled, closed, delivered) = tokio::join!(read, cancelled, closed, delivered);
    vec![
        ("a read of news", read.err()),
        ("a cancellation of news", cancelled.err()),
        ("an activity's answer to news", closed.err()),
        ("a message to news", delivered.err()),
    ]
}
