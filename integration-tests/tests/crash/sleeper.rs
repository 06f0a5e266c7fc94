//! Calls to an owner while it is frozen. They wait in its socket, are read when it wakes, and must not be answered from what it remembers.

use anyhow::Context as _;
use harvest_integration_tests::Fleet;
use harvest_integration_tests::store::Fences;
use harvest_proto::internal::v1::history_service_client::HistoryServiceClient;
use harvest_proto::internal::v1::{GetResultCall, GetWorkflowCall, SignalWorkflowCall, StartWorkflowCall};
use harvest_proto::v1;
use harvest_rpc::{Error, Reason};
use harvest_runtime::OwnedTask;
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
    asking: Option<OwnedTask<Answers>>,
}

impl Sleeper {
    /// Connects to the owner of a shard.
    pub async fn connect(fleet: &Fleet, name: &str, shard_id: u32) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(fleet.address(name)?)?.connect().await?;
        Ok(Self { name: name.to_owned(), shard_id, channel, asking: None })
    }

    /// Sends a read, a look at the result, a signal named `word` and a start of the type `waiting`: all about the same shard.
    pub fn ask(&mut self, reference: v1::WorkflowRef) {
        self.asking = Some(harvest_runtime::spawn_owned("ask", ask(self.channel.clone(), self.shard_id, reference)));
    }

    /// After it was woken: waits for what it says. Nothing may be answered, unless the shard has come back to it meanwhile: its epoch, which was
    /// `epoch` when it fell asleep, has been raised by another and then by it.
    pub async fn must_be_refused(self, fences: &Fences, epoch: i64) -> anyhow::Result<()> {
        let asking = self.asking.context("nothing was asked")?;
        let answers = tokio::time::timeout(ANSWER, asking).await.context("the woken owner answers nothing")??;
        for (what, refusal) in answers {
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
    let start = client.start_workflow(StartWorkflowCall { shard_id, request: Some(again) });
    let (read, outcome, write, start) = tokio::join!(read, outcome, write, start);
    vec![("a read", read.err()), ("a result", outcome.err()), ("a signal", write.err()), ("a start", start.err())]
}
