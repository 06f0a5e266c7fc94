//! Clients: they start, signal, look, cancel and wait, and remember what they were told.

use super::program::argument;
use super::{World, worker};
use crate::shard::operation::{Answer, BusinessKey, Operation, Refusal, StartOperation, Target};
use harvest_ids::{DurationMs, ExecutionId, Namespace, RequestId, ShardId, SignalName, Slot, TaskQueue, WorkflowId, WorkflowType};
use harvest_runtime::spawn;
use harvest_workflow_core::decision::Reject;
use harvest_workflow_core::input::Input;
use harvest_workflow_core::payload::Payload;
use std::sync::Arc;
use tokio::task::JoinHandle;

const CLIENTS: usize = 6;
const STARTS: usize = 3;

/// Starts all clients.
pub(super) fn spawn_all(world: &Arc<World>) -> Vec<JoinHandle<()>> {
    (0..CLIENTS).map(|number| spawn("client", client(world.clone(), number))).collect()
}

fn key(id: &str) -> BusinessKey {
    BusinessKey { namespace: Namespace::default(), workflow_type: WorkflowType::new("w").unwrap(), workflow_id: WorkflowId::new(id).unwrap() }
}

fn shard_of(key: &BusinessKey) -> ShardId {
    ShardId(u32::from(Slot::of(&key.namespace, &key.workflow_id).number()) % super::SHARDS)
}

async fn client(world: Arc<World>, number: usize) {
    for start in 0..STARTS {
        world.pause(3_000).await;
        let id = if world.dice.one_in(4) { format!("shared-{}", world.dice.below(3)) } else { format!("c{number}-{start}") };
        let key = key(&id);
        if let Some(run) = start_run(&world, &key, &format!("start-{number}-{start}")).await {
            accompany(&world, &key, run, &format!("{number}-{start}")).await;
        }
    }
}

async fn start_run(world: &Arc<World>, key: &BusinessKey, request: &str) -> Option<ExecutionId> {
    // Some clients are in the process of a worker.
    let session = world.dice.one_in(2).then(|| worker::any(world));
    let operation = StartOperation {
        key: key.clone(),
        input: argument(world.dice.below(1_000_000), 2, world.dice.below(3)),
        task_queue: TaskQueue::default(),
        request_id: Some(RequestId::new(request).unwrap()),
        execution_timeout: world.dice.one_in(6).then(|| DurationMs::new("timeout", 1_000 + world.dice.below(20_000)).unwrap()),
        workflow_task_timeout: DurationMs::from_millis_const(10_000),
        chain_execution_timeout: world.dice.one_in(6).then(|| DurationMs::new("timeout", 1_000 + world.dice.below(20_000)).unwrap()),
        sla: world.dice.one_in(3).then(|| DurationMs::new("sla", 1 + world.dice.below(10_000)).unwrap()),
        fail_on_conflict: world.dice.one_in(2),
        eager_worker: session.as_ref().map(|session| session.id().clone()),
    };
    match world.insist(shard_of(key), || Operation::Start(Box::new(operation.clone()))).await {
        Ok(Answer::Started { execution_id, fresh, task, .. }) => {
            world.note(format_args!("{request} is run {execution_id} fresh {fresh} with its task {}", task.is_some()));
            if let (Some(task), Some(session)) = (task, session) {
                worker::first_task(world, session, *task);
            }
            let mut ledger = world.ledger();
            ledger.started.insert(execution_id);
            if fresh {
                ledger.by_request.insert(request.to_owned(), execution_id);
            }
            Some(execution_id)
        }
        Err(Refusal::AlreadyExists { execution_id, .. }) => {
            world.ledger().started.insert(execution_id);
            None
        }
        other => {
            world.ledger().violations.push(format!("{request}: {other:?}"));
            None
        }
    }
}

/// Does things with a run, then waits for its end.
async fn accompany(world: &World, key: &BusinessKey, run: ExecutionId, name: &str) {
    for number in 0..world.dice.below(8) {
        world.pause(800).await;
        let target = if world.dice.one_in(2) { Target::Execution(run) } else { Target::Key(key.clone()) };
        match world.dice.below(15) {
            0..6 => {
                signal(world, run, target, &format!("s-{name}-{number}")).await;
                locate(world, run).await;
            }
            6..9 => locate(world, run).await,
            9 => describe(world, run).await,
            10 => {
                end(world, run, target, Input::RequestCancel { reason: "client".into(), request_id: Some(RequestId::new(format!("c-{name}")).unwrap()) }).await
            }
            11 | 12 => {
                let longest = Some(DurationMs::new("longest", 1 + world.dice.below(4_000)).unwrap());
                let request_id = Some(RequestId::new(format!("p-{name}-{number}")).unwrap());
                end(world, run, target, Input::Pause { longest, reason: "client".into(), request_id }).await;
            }
            13 => end(world, run, target, Input::Resume { request_id: None }).await,
            _ => {
                if world.dice.one_in(2) {
                    end(world, run, target, Input::Terminate { reason: "client".into(), request_id: None }).await;
                }
            }
        }
    }
    wait(world, run).await;
}

async fn signal(world: &World, run: ExecutionId, target: Target, text: &str) {
    let operation = || Operation::Input {
        target: target.clone(),
        follow_chain: true,
        input: Input::Signal { name: SignalName::new("go").unwrap(), payload: Payload::json(text.to_owned()), request_id: Some(RequestId::new(text).unwrap()) },
    };
    match world.insist(World::shard_of(run), operation).await {
        Ok(Answer::Decided { execution_id, fresh, .. }) => {
            world.note(format_args!("signal {text} taken by {execution_id}"));
            let mut ledger = world.ledger();
            ledger.signals.insert(text.to_owned(), execution_id);
            if fresh {
                ledger.acknowledged_event(execution_id);
            }
        }
        Err(Refusal::Reject(Reject::Closed { .. })) => {
            world.ledger().refused_signals.insert(text.to_owned());
        }
        other => world.ledger().violations.push(format!("signal {text}: {other:?}")),
    }
}

async fn locate(world: &World, run: ExecutionId) {
    let asked_after = world.ledger().seen(run);
    match world.insist(World::shard_of(run), || Operation::Locate(Target::Execution(run))).await {
        Ok(Answer::Located { last_event, .. }) => world.ledger().saw(run, last_event, asked_after),
        other => world.ledger().violations.push(format!("locate {run}: {other:?}")),
    }
}

async fn describe(world: &World, run: ExecutionId) {
    let asked_after = world.ledger().seen(run);
    match world.insist(World::shard_of(run), || Operation::Describe(Target::Execution(run))).await {
        Ok(Answer::Described(view)) => world.ledger().saw(run, view.last_event, asked_after),
        other => world.ledger().violations.push(format!("describe {run}: {other:?}")),
    }
}

async fn end(world: &World, run: ExecutionId, target: Target, input: Input) {
    let operation = || Operation::Input { target: target.clone(), follow_chain: true, input: input.clone() };
    match world.insist(World::shard_of(run), operation).await {
        Ok(Answer::Decided { .. }) | Err(Refusal::Reject(Reject::Closed { .. })) => {}
        other => world.ledger().violations.push(format!("end {run}: {other:?}")),
    }
}

/// Waits for the end of a chain.
async fn wait(world: &World, mut run: ExecutionId) {
    loop {
        match world.insist(World::shard_of(run), || Operation::AwaitClose(Target::Execution(run))).await {
            Ok(Answer::Closed(closed)) => {
                let next = closed.outcome.continued_as();
                world.note(format_args!("run {run} ended {}", closed.outcome.status()));
                world.ledger().outcomes.insert(run, closed.outcome);
                match next {
                    Some(next) => run = next,
                    None => return,
                }
            }
            other => {
                world.ledger().violations.push(format!("wait for {run}: {other:?}"));
                return;
            }
        }
    }
}
