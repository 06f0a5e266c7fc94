//! The session: one stream to a frontend, made again whenever it breaks.

use crate::ActivityOptions;
use crate::SDK_VERSION;
use crate::channels::{Connection, MAX_MESSAGE_BYTES, is_transient};
use crate::worker::credits::TaskKind;
use crate::worker::eager_start::Session;
use crate::worker::{WorkerError, WorkerShared, activity_tasks, query_tasks, workflow_tasks};
use harvest_proto::v1::worker_service_client::WorkerServiceClient;
use harvest_proto::v1::{
    ActivityTypeInfo, Announce, Drain, Hello, ServerMessage, Welcome, WorkerMessage, WorkflowTypeInfo, server_message, worker_message::Message,
};
use harvest_wire::activity_options;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

/// Messages to the server that wait to be sent.
const OUTGOING: usize = 256;
/// How long opening a session may take.
const OPENING: Duration = Duration::from_secs(10);
/// Most tokens in one announcement.
const MAX_ANNOUNCED: usize = 10_000;
/// When the server does not say.
const DEFAULT_ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);

/// Serves until `stop`; takes no more tasks from `drain` on.
pub(crate) async fn serve(worker: Arc<WorkerShared>, drain: CancellationToken, stop: CancellationToken) -> Result<(), WorkerError> {
    let watching = watch_attempts(worker.clone());
    let keeping = keep_connected(&worker, &drain, &stop);
    tokio::select! {
        biased;
        kept = keeping => kept,
        () = watching => Ok(()), // never: it has no end
    }
}

/// Aborts attempts that nobody confirms, also while there is no session.
async fn watch_attempts(worker: Arc<WorkerShared>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        worker.attempts.abort_unconfirmed();
    }
}

async fn keep_connected(worker: &Arc<WorkerShared>, drain: &CancellationToken, stop: &CancellationToken) -> Result<(), WorkerError> {
    let mut pause = Duration::from_millis(50);
    let mut worker_id = String::new();
    loop {
        let (index, connection) = worker.channels.current();
        let opened = Instant::now();
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            ended = session(worker, (index, connection), &mut worker_id, drain) => ended,
        };
        worker.credits.close();
        worker.expecting.send_replace(false);
        let status = match ended {
            Ok(()) => Status::unavailable("the server closed the stream"),
            Err(status) => status,
        };
        if worker_id.is_empty() && !is_transient(&status) {
            stop.cancel();
            return Err(WorkerError::Refused(Box::new(status)));
        }
        worker.channels.rotate(index);
        if opened.elapsed() > Duration::from_secs(10) {
            pause = Duration::from_millis(50);
        }
        tracing::info!(%status, "the session ended and is opened again in {pause:?}");
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// One session, from hello to its end.
async fn session(worker: &Arc<WorkerShared>, frontend: (usize, Connection), worker_id: &mut String, drain: &CancellationToken) -> Result<(), Status> {
    let mut client = WorkerServiceClient::new(frontend.1.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let (sender, receiver) = mpsc::channel(OUTGOING);
    let hello = message(Message::Hello(hello(worker, worker_id)));
    sender.try_send(hello).map_err(|_| Status::internal("the stream has no room for the first message"))?;
    let opening = async {
        let mut stream = client.open_session(ReceiverStream::new(receiver)).await?.into_inner();
        let welcome = welcome(&mut stream).await?;
        Ok::<_, Status>((stream, welcome))
    };
    let opened = tokio::time::timeout(OPENING, opening).await.map_err(|_| Status::deadline_exceeded("the server did not welcome the worker"))?;
    let (mut stream, welcome) = opened?;
    tracing::info!(worker_id = welcome.worker_id, "the session is open");
    worker_id.clone_from(&welcome.worker_id);
    let _open = worker.session.open(Session { worker_id: worker_id.clone(), frontend });
    worker.welcomed.send_replace(true);
    if welcome.announce_timeout_ms > 0 {
        worker.attempts.set_patience(Duration::from_millis(welcome.announce_timeout_ms));
    }
    let interval = if welcome.announce_interval_ms == 0 { DEFAULT_ANNOUNCE_INTERVAL } else { Duration::from_millis(welcome.announce_interval_ms) };
    let mut tick = tokio::time::interval(interval); // its first tick is at once: what is running is announced on reconnect
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let patience = worker.attempts.patience();
    let mut heard = Instant::now();
    let mut drained = drain.is_cancelled();
    if !drained {
        worker.expecting.send_replace(true);
        worker.credits.open(sender.clone());
    }
    loop {
        tokio::select! {
            biased;
            () = drain.cancelled(), if !drained => {
                drained = true;
                worker.credits.close();
                send(&sender, Message::Drain(Drain {}));
            }
            _now = tick.tick() => {
                if heard.elapsed() > patience {
                    return Err(Status::unavailable("announcements are not answered"));
                }
                announce(worker, &sender);
                worker.credits.flush();
            }
            received = stream.message() => match received? {
                Some(received) => {
                    if matches!(received.message, Some(server_message::Message::AnnounceReply(_))) {
                        heard = Instant::now();
                    }
                    dispatch(worker, worker_id, received);
                }
                None => return Ok(()),
            },
        }
    }
}

async fn welcome(stream: &mut Streaming<ServerMessage>) -> Result<Welcome, Status> {
    match stream.message().await?.and_then(|message| message.message) {
        Some(server_message::Message::Welcome(welcome)) => Ok(welcome),
        Some(_) | None => Err(Status::unavailable("the stream did not begin with a welcome")),
    }
}

fn hello(worker: &WorkerShared, resume: &str) -> Hello {
    let millis = |span: Option<Duration>| span.map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    let workflows = worker.registry.workflows.values();
    // Checked when the worker was built.
    let declared = |options: &ActivityOptions| options.to_core().ok().and_then(|options| activity_options::to_proto(&options));
    let activities = worker.registry.activities.values();
    Hello {
        namespace: worker.config.namespace.clone(),
        identity: worker.config.identity.clone(),
        build_id: worker.config.build_id.clone(),
        sdk: SDK_VERSION.to_owned(),
        task_queues: worker.config.queues.clone(),
        workflow_types: workflows
            .map(|it| WorkflowTypeInfo {
                name: it.name.to_owned(),
                execution_timeout_ms: millis(it.execution_timeout),
                chain_execution_timeout_ms: millis(it.chain_execution_timeout),
                sla_ms: millis(it.sla),
            })
            .collect(),
        activity_types: activities.map(|it| ActivityTypeInfo { name: it.name.to_owned(), options: declared(&it.options) }).collect(),
        resume_worker_id: resume.to_owned(),
    }
}

fn message(message: Message) -> WorkerMessage {
    WorkerMessage { message: Some(message) }
}

/// Sends without waiting: a stream that takes nothing any more will break, and the next one starts over.
fn send(sender: &mpsc::Sender<WorkerMessage>, what: Message) {
    if sender.try_send(message(what)).is_err() {
        tracing::warn!("the stream to the server is full; a message is left out");
    }
}

fn announce(worker: &WorkerShared, sender: &mpsc::Sender<WorkerMessage>) {
    let tokens = worker.attempts.tokens();
    let mut chunks = tokens.chunks(MAX_ANNOUNCED);
    // Also an empty one: its answer shows that the session works.
    send(sender, Message::Announce(Announce { task_tokens: chunks.next().map(<[_]>::to_vec).unwrap_or_default() }));
    for chunk in chunks {
        send(sender, Message::Announce(Announce { task_tokens: chunk.to_vec() }));
    }
}

fn dispatch(worker: &Arc<WorkerShared>, worker_id: &str, received: ServerMessage) {
    match received.message {
        Some(server_message::Message::WorkflowTask(task)) => {
            let queue = task.workflow.as_ref().map(|workflow| workflow.task_queue.clone()).unwrap_or_default();
            let place = worker.credits.take(&queue, TaskKind::Workflow);
            workflow_tasks::spawn(worker, worker_id, task, place);
        }
        Some(server_message::Message::QueryTask(task)) => {
            let queue = task.workflow.as_ref().map(|workflow| workflow.task_queue.clone()).unwrap_or_default();
            let place = worker.credits.take(&queue, TaskKind::Workflow);
            let (shared, id) = (worker.clone(), worker_id.to_owned());
            worker.tasks.spawn(async move {
                query_tasks::run(shared, id, task).await;
                drop(place);
            });
        }
        Some(server_message::Message::ActivityTask(task)) => {
            let place = worker.credits.take(&task.task_queue, TaskKind::Activity);
            activity_tasks::spawn(worker, worker_id, task, Some(place));
        }
        Some(server_message::Message::AnnounceReply(reply)) => worker.attempts.confirmed(&reply.cancel_requested, &reply.lost),
        Some(server_message::Message::Drained(_)) => _ = worker.expecting.send_replace(false),
        Some(server_message::Message::Welcome(_)) | None => tracing::debug!("a message that this SDK does not know was skipped"),
    }
}
