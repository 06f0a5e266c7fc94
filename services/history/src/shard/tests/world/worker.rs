//! Workers: they take what is offered, decide and do, announce, and die.

use super::World;
use super::program::Code;
use crate::shard::neighbours::{Offer, OfferKind};
use crate::shard::operation::{Answer, EagerOperation, Given, Operation, Refusal, TakenActivityTask, TakenWorkflowTask, Target};
use harvest_ids::{DurationMs, EventId, ExecutionId, ShardId, Timestamp, WorkerId};
use harvest_runtime::{Clock, IdSource, spawn};
use harvest_wire::worker::DecisionAhead;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::{Event, EventKind};
use harvest_workflow_core::input::{ActivityOutcome, CompleteWorkflowTask, Input, TaskToken};
use harvest_workflow_core::payload::{Failure, Payload};
use harvest_workflow_core::record::{Record, WorkflowTaskFailure};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WORKERS: usize = 3;
/// How often attempts are announced.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);
/// After how long without an answer to its announcements a worker gives its attempts up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(8);

/// One session of a worker process.
#[derive(Debug)]
pub(super) struct Session {
    id: WorkerId,
    dead: AtomicBool,
    /// Runs in memory.
    runs: Mutex<BTreeMap<ExecutionId, InMemory>>,
    /// Attempts that it runs, and when somebody last said that they are its.
    running: Mutex<BTreeMap<u64, (TaskToken, Duration)>>,
}

/// A run in a worker's memory.
#[derive(Debug)]
struct InMemory {
    code: Code,
    /// It has all events of the run as of this time of the owner, which it heard at that time of its own.
    complete: Option<(Timestamp, Duration)>,
}

impl Session {
    fn new(world: &World) -> Arc<Self> {
        Arc::new(Self { id: world.ids.worker_id(), dead: AtomicBool::new(false), runs: Mutex::default(), running: Mutex::default() })
    }

    pub(super) fn id(&self) -> &WorkerId {
        &self.id
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }
}

/// Starts all workers.
pub(super) fn spawn_all(world: &Arc<World>) {
    for _ in 0..WORKERS {
        let session = Session::new(world);
        world.sessions().push(session.clone());
        drop(spawn("announcements", announce(world.clone(), session)));
    }
}

/// A worker process is killed and started again.
pub(super) fn restart(world: &Arc<World>) {
    let session = Session::new(world);
    let at = world.dice.index(WORKERS);
    let old = std::mem::replace(&mut world.sessions()[at], session.clone());
    old.dead.store(true, Ordering::Relaxed);
    world.note(format_args!("worker {} died", old.id));
    drop(spawn("announcements", announce(world.clone(), session)));
}

/// An offer finds a worker.
pub(super) async fn take(world: Arc<World>, offer: Offer) {
    let session = {
        let sessions = world.sessions();
        let sticky = sessions.iter().find(|session| offer.sticky.as_ref() == Some(&session.id));
        sticky.filter(|_| !world.mishap(5)).unwrap_or(&sessions[world.dice.index(WORKERS)]).clone()
    };
    let take = Operation::TakeTask { execution_id: offer.execution_id, activity_id: offer.activity_id, worker_id: session.id.clone() };
    assert_ne!(offer.kind, OfferKind::Query);
    let answer = world.call(offer.shard_id, take).await;
    if !world.hop().await || session.is_dead() {
        return;
    }
    match answer {
        Some(Ok(Answer::WorkflowTask(task))) => decide(&world, &session, *task).await,
        Some(Ok(Answer::ActivityTask(task))) => perform(&world, &session, *task).await,
        Some(Ok(Answer::Gone)) => world.note(format_args!("{:?} of {} was gone", offer.activity_id, offer.execution_id)),
        Some(Err(refusal)) => world.note(format_args!("{:?} of {} was refused: {refusal}", offer.activity_id, offer.execution_id)),
        None => {}
        Some(Ok(other)) => world.ledger().violations.push(format!("{other:?} instead of a task")),
    }
}

/// The session of some worker.
pub(super) fn any(world: &World) -> Arc<Session> {
    world.sessions()[world.dice.index(WORKERS)].clone()
}

/// A start by a client in a worker's process has brought the run's first workflow task.
pub(super) fn first_task(world: &Arc<World>, session: Arc<Session>, task: TakenWorkflowTask) {
    let world = world.clone();
    drop(spawn("first task", async move {
        if world.hop().await && !session.is_dead() {
            decide(&world, &session, task).await;
        }
    }));
}

async fn history(world: &World, run: ExecutionId, to: EventId) -> Vec<Event> {
    let rows = world.store.history(World::shard_of(run), run, EventId(1), usize::MAX).await.unwrap();
    let records = rows.iter().flat_map(|row| harvest_wire::records::decode(row).unwrap());
    let event = |record| match record {
        Record::Event(event) if event.id <= to => Some(event),
        Record::Event(_) | Record::Control(_) => None,
    };
    records.filter_map(event).collect()
}

/// Brings the code of a run up to a task's events.
async fn replay(world: &World, session: &Session, task: &TakenWorkflowTask) -> Code {
    let run = task.token.execution_id;
    let cached = session.runs.lock().unwrap().remove(&run).map(|cached| cached.code);
    if let (Some(mut code), Some(events)) = (cached, task.events.clone())
        && code.feed(events).is_ok()
        && code.machine.begin_task(task.last_event).is_ok()
        && code.drive().is_ok()
    {
        return code;
    }
    let mut code = Code::new();
    let events = history(world, run, task.last_event).await;
    let replayed = code.feed(events).and_then(|()| code.machine.begin_task(task.last_event).and_then(|()| code.drive()).map_err(|error| error.to_string()));
    if let Err(error) = replayed {
        world.ledger().violations.push(format!("the history of run {run} does not replay: {error}"));
    }
    code
}

async fn decide(world: &Arc<World>, session: &Arc<Session>, task: TakenWorkflowTask) {
    let run = task.token.execution_id;
    world.ledger().saw(run, task.last_event, EventId(0));
    let mut code = replay(world, session, &task).await;
    world.pause(30).await;
    if world.mishap(50) {
        world.pause(20_000).await; // longer than the task's timeout
    }
    let worker_id = session.id.clone();
    let Some(completion) = code.machine.take_completion() else { return };
    let decision = format!("{}/{}/{}", run, task.token.dispatch.epoch, task.token.dispatch.sequence);
    if world.mishap(40) {
        let cause = WorkflowTaskFailure::WorkerError { message: "made to fail".into() };
        send(world, session, run, &|| input(run, Input::FailWorkflowTask { token: task.token.clone(), worker_id: worker_id.clone(), cause: cause.clone() }))
            .await;
        return;
    }
    let eager_commands = wanted(world, &completion.commands);
    let complete = Input::CompleteWorkflowTask(Box::new(CompleteWorkflowTask {
        token: task.token.clone(),
        worker_id,
        build_id: decision.clone(),
        sdk: "model".into(),
        consumed_signals: completion.consumed_signals,
        commands: completion.commands,
    }));
    let operation = || match eager_commands.is_empty() {
        true => input(run, complete.clone()),
        false => Operation::Eager(Box::new(EagerOperation { input: complete.clone(), eager_commands: eager_commands.clone(), ahead: None })),
    };
    match send(world, session, run, &operation).await {
        Some(Ok(Answer::Decided { try_again: false, .. })) => {
            world.note(format_args!("decided {decision}"));
            world.ledger().decided.insert(decision);
            session.runs.lock().unwrap().insert(run, InMemory { code, complete: None });
        }
        Some(Ok(Answer::Given(given))) if !given.try_again => decided(world, session, run, code, decision, *given),
        Some(Err(Refusal::Reject(reject))) => world.note(format_args!("decision {decision} refused: {reject}")),
        _ => {}
    }
}

fn input(run: ExecutionId, input: Input) -> Operation {
    Operation::Input { target: Target::Execution(run), follow_chain: false, input }
}

/// Which activities of a decision a worker wants at once: about every other.
fn wanted(world: &World, commands: &[Command]) -> BTreeSet<usize> {
    (0..commands.len()).filter(|at| matches!(commands[*at], Command::ScheduleActivity(_)) && world.dice.one_in(2)).collect()
}

/// A decision is taken, and with its answer came more work.
fn decided(world: &Arc<World>, session: &Arc<Session>, run: ExecutionId, mut code: Code, decision: String, given: Given) {
    world.note(format_args!("decided {decision}, {} activities given", given.activities.len()));
    let last = given.new_events.last().map(|event| event.id);
    {
        let mut ledger = world.ledger();
        ledger.decided.insert(decision);
        ledger.saw(run, last.unwrap_or_default(), EventId(0));
    }
    let complete = last.map(|_| (given.decided_at, world.clock.monotonic()));
    if let Err(error) = code.feed(given.new_events) {
        world.ledger().violations.push(format!("new events of run {run} do not fit: {error}"));
    }
    session.runs.lock().unwrap().insert(run, InMemory { code, complete });
    for task in given.activities {
        let (world, session) = (world.clone(), session.clone());
        drop(spawn("activity", async move {
            if world.hop().await {
                perform(&world, &session, task).await;
            }
        }));
    }
}

/// What the code decides about a result that is not recorded yet, if this worker knows the run well enough.
fn ahead(world: &World, session: &Session, token: &TaskToken, output: &Payload) -> Option<(Code, DecisionAhead)> {
    if world.dice.one_in(4) {
        return None;
    }
    let InMemory { mut code, complete } = session.runs.lock().unwrap().remove(&token.execution_id)?;
    let (decided_at, heard) = complete?;
    let passed = world.clock.monotonic().saturating_sub(heard);
    let at = decided_at.plus(DurationMs::new("passed", u64::try_from(passed.as_millis()).ok()?.max(1)).ok()?);
    let id = code.machine.next_event();
    let event = Event { id, at, kind: EventKind::ActivityCompleted { activity_id: token.activity_id?, output: output.clone() } };
    code.feed(vec![event]).ok()?;
    code.machine.begin_task(id).ok()?;
    code.drive().ok()?;
    let completion = code.machine.take_completion()?;
    let last_event = EventId(id.0 - 1);
    let decision = format!("{}/{}/{}/ahead", token.execution_id, token.dispatch.epoch, token.dispatch.sequence);
    let eager_commands = wanted(world, &completion.commands);
    let (consumed_signals, commands) = (completion.consumed_signals, completion.commands);
    Some((code, DecisionAhead { last_event, completed_at: at, build_id: decision, sdk: "model".into(), consumed_signals, commands, eager_commands }))
}

/// Sends an answer of a worker until somebody says something about it, sometimes twice.
async fn send(world: &World, session: &Session, run: ExecutionId, operation: &(dyn Fn() -> Operation + Sync)) -> Option<Result<Answer, Refusal>> {
    let mut answer = None;
    for _ in 0..8 {
        if session.is_dead() {
            return None;
        }
        match world.call(World::shard_of(run), operation()).await {
            Some(Err(Refusal::NotOwner | Refusal::Unavailable(_) | Refusal::StoreAway | Refusal::Overloaded { .. } | Refusal::Poisoned(_))) | None => {
                world.pause(300).await
            }
            Some(done) => {
                answer = answer.or(Some(done));
                if !world.mishap(10) {
                    break;
                }
            }
        }
    }
    answer
}

async fn perform(world: &Arc<World>, session: &Arc<Session>, task: TakenActivityTask) {
    let (run, token) = (task.token.execution_id, task.token.clone());
    let Some(activity) = token.activity_id else { return };
    let output = format!("\"{run}/{activity}/{}/{}/{}\"", token.attempt, token.dispatch.epoch, token.dispatch.sequence);
    world.note(format_args!("{} runs {output}", session.id));
    if task.spec.retry.max_attempts == 1 {
        *world.ledger().begun_once.entry((run, activity)).or_default() += 1;
    }
    let number = world.ids.random_u64();
    session.running.lock().unwrap().insert(number, (token.clone(), world.clock.monotonic()));
    world.pause(300).await;
    if world.mishap(15) {
        world.pause(20_000).await;
    }
    let still_running = session.running.lock().unwrap().remove(&number).is_some();
    if !still_running || session.is_dead() {
        return;
    }
    let outcome = match world.dice.below(10) {
        0 | 1 => ActivityOutcome::Failed { failure: Failure::engine("OnPurpose", "this attempt fails"), retry_after: None },
        2 => ActivityOutcome::Failed { failure: Failure::engine("Later", "this attempt fails"), retry_after: Some(DurationMs::from_millis_const(50)) },
        _ => ActivityOutcome::Completed(Payload::json(output.clone())),
    };
    let completes = matches!(outcome, ActivityOutcome::Completed(_));
    if completes {
        world.ledger().produced.insert(output.clone());
    }
    let ahead = match &outcome {
        ActivityOutcome::Completed(output) => ahead(world, session, &token, output),
        _ => None,
    };
    let (code, ahead) = ahead.map_or((None, None), |(code, ahead)| (Some(code), Some(ahead)));
    let close = Input::CloseActivity { token, worker_id: session.id.clone(), outcome };
    let operation = || match &ahead {
        Some(ahead) => {
            let eager_commands = ahead.eager_commands.clone();
            Operation::Eager(Box::new(EagerOperation { input: close.clone(), eager_commands, ahead: Some(ahead.clone()) }))
        }
        None => input(run, close.clone()),
    };
    let answer = send(world, session, run, &operation).await;
    let recorded = matches!(answer, Some(Ok(Answer::Decided { fresh: true, .. } | Answer::Given(_))));
    if recorded && completes {
        world.note(format_args!("recorded {output}"));
        world.ledger().recorded.insert(output);
    }
    if let (Some(Ok(Answer::Given(given))), Some(code), Some(ahead)) = (answer, code, ahead) {
        decided(world, session, run, code, ahead.build_id, *given);
    }
}

/// Says what it runs, and stops what it is told to stop or heard nothing of.
async fn announce(world: Arc<World>, session: Arc<Session>) {
    while !session.is_dead() {
        world.sleep(ANNOUNCE_EVERY).await;
        if world.net.frontends_down.load(Ordering::Relaxed) {
            continue;
        }
        let mut by_shard: BTreeMap<ShardId, Vec<(u64, TaskToken)>> = BTreeMap::new();
        for (number, (token, _)) in session.running.lock().unwrap().iter() {
            by_shard.entry(World::shard_of(token.execution_id)).or_default().push((*number, token.clone()));
        }
        for (shard_id, attempts) in by_shard {
            drop(spawn("announcement", announce_to(world.clone(), session.clone(), shard_id, attempts)));
        }
        let now = world.clock.monotonic();
        session.running.lock().unwrap().retain(|_, (_, heard)| now.saturating_sub(*heard) < GIVE_UP_AFTER);
    }
}

async fn announce_to(world: Arc<World>, session: Arc<Session>, shard_id: ShardId, attempts: Vec<(u64, TaskToken)>) {
    let tokens = attempts.iter().map(|(_, token)| token.clone()).collect();
    let answer = world.call(shard_id, Operation::Announce { worker_id: session.id.clone(), tokens }).await;
    let Some(Ok(Answer::Announced { lost, .. })) = answer else { return };
    let now = world.clock.monotonic();
    let mut running = session.running.lock().unwrap();
    for (number, token) in attempts {
        if lost.contains(&token) {
            running.remove(&number);
        } else if let Some((_, heard)) = running.get_mut(&number) {
            *heard = now;
        }
    }
}
