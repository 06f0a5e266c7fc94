//! Starts by many clients at once, over several connections, with every refusal counted. A refused start is sent again as the SDK does it.

use super::code::QUEUE;
use super::load::Load;
use super::probe::milliseconds;
use super::progress::Progress;
use anyhow::bail;
use harvest_proto::v1::StartWorkflowRequest;
use harvest_proto::v1::workflow_service_client::WorkflowServiceClient;
use harvest_rpc::{ChannelOptions, Error, Reason, client};
use harvest_runtime::{Clock, IdSource as _, SystemClock, SystemIds};
use harvest_wire::payload;
use harvest_workflow_core::payload::Payload;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::Request;
use tonic::transport::Channel;

/// Clients that share a connection: a server lets so many calls of one be open at a time.
const CLIENTS_PER_CONNECTION: u32 = 100;
/// The longest one try may take.
const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// For how long a refused start is sent again.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first pause between two tries; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is started: `count` runs of one type, each with a number of its own in its business key.
#[derive(Debug, Clone)]
pub struct Wave {
    /// The type of the runs.
    pub workflow_type: &'static str,
    /// How many.
    pub count: u64,
    /// How many clients start them.
    pub clients: u32,
    /// What each gets; its own number if `None`.
    pub input: Option<u64>,
}

/// A run that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Its id.
    pub execution_id: String,
    /// Its input.
    pub input: u64,
}

/// What became of a wave.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The runs that were started.
    pub started: Vec<Started>,
    /// Milliseconds of each accepted start, its refused tries and the pauses between them included.
    pub times_ms: Vec<f64>,
    /// Tries that were refused and repeated, by reason.
    pub retried: BTreeMap<&'static str, u64>,
    /// Starts that were given up, by reason.
    pub failed: BTreeMap<&'static str, u64>,
    /// From the first start to the last answer.
    pub took: Duration,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.started.extend(other.started);
        self.times_ms.extend(other.times_ms);
        for (sum, part) in [(&mut self.retried, other.retried), (&mut self.failed, other.failed)] {
            part.into_iter().for_each(|(reason, count)| *sum.entry(reason).or_default() += count);
        }
    }

    /// The same when all were started.
    ///
    /// # Errors
    /// When a start was given up.
    pub fn complete(self) -> anyhow::Result<Self> {
        if !self.failed.is_empty() {
            bail!("starts were refused for good: {:?}", self.failed);
        }
        Ok(self)
    }
}

/// Starts a wave and waits until every start has been answered.
///
/// # Errors
/// When the frontend's address is none.
pub async fn run(load: &Load, address: &str, wave: &Wave, clock: &Arc<SystemClock>, label: &str, progress: &Progress) -> anyhow::Result<Outcome> {
    let connections = wave.clients.div_ceil(CLIENTS_PER_CONNECTION);
    let options = ChannelOptions { connect_timeout: TRY_TIMEOUT, ..ChannelOptions::default() };
    let channels = (0..connections).map(|_| Ok(client::endpoint(address, &options)?.connect_lazy()));
    let channels: Vec<Channel> = channels.collect::<anyhow::Result<_>>()?;
    let (begun, taken, done) = (clock.monotonic(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for (_, channel) in (0..wave.clients).zip(channels.iter().cycle()) {
        let starter = Starter { service: WorkflowServiceClient::new(channel.clone()), load: load.clone(), clock: clock.clone() };
        let (wave, taken, done) = (wave.clone(), taken.clone(), done.clone());
        tasks.spawn(async move {
            let mut outcome = Outcome::default();
            while taken.fetch_add(1, Ordering::Relaxed) < wave.count {
                starter.start(&wave, &mut outcome).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(outcome)
        });
    }
    let mut outcome = Outcome::default();
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                Some(ended) => outcome.add(ended??),
                None => break,
            },
            () = clock.sleep(Duration::from_millis(250)) => progress.counting(label, done.load(Ordering::Relaxed), wave.count),
        }
    }
    outcome.took = clock.monotonic().saturating_sub(begun);
    Ok(outcome)
}

/// One client.
struct Starter {
    service: WorkflowServiceClient<Channel>,
    load: Load,
    clock: Arc<SystemClock>,
}

impl Starter {
    async fn start(&self, wave: &Wave, outcome: &mut Outcome) -> anyhow::Result<()> {
        let number = self.load.number();
        let input = wave.input.unwrap_or(number);
        let request = StartWorkflowRequest {
            namespace: "default".to_owned(),
            workflow_type: wave.workflow_type.to_owned(),
            workflow_id: format!("wave-{number}"),
            input: Some(payload::to_proto(&Payload::json(input.to_string()))),
            task_queue: QUEUE.to_owned(),
            request_id: SystemIds.process_id(),
            execution_timeout_ms: Some(7 * 24 * 3_600_000),
            ..StartWorkflowRequest::default()
        };
        let (begun, mut pause) = (self.clock.monotonic(), FIRST_PAUSE);
        loop {
            let error = match self.attempt(request.clone()).await {
                Ok(execution_id) => {
                    outcome.times_ms.push(milliseconds(begun, self.clock.monotonic())?);
                    outcome.started.push(Started { execution_id, input });
                    return Ok(());
                }
                Err(error) => error,
            };
            let again = error.retryable() || matches!(error.reason, Reason::DeadlineExceeded | Reason::Cancelled | Reason::Internal);
            let waited = self.clock.monotonic().saturating_sub(begun);
            let list = if again && waited < PATIENCE { &mut outcome.retried } else { &mut outcome.failed };
            *list.entry(error.reason.as_str()).or_default() += 1;
            if !again || waited >= PATIENCE {
                return Ok(());
            }
            self.clock.sleep(pause.max(error.retry_after.unwrap_or_default())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&self, message: StartWorkflowRequest) -> Result<String, Error> {
        let mut request = Request::new(message);
        request.set_timeout(TRY_TIMEOUT);
        Ok(self.service.clone().start_workflow(request).await?.into_inner().execution_id)
    }
}
