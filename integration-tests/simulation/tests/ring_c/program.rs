//! What runs: a workflow whose steps follow from its argument, and the activity by which it touches the world outside.

use crate::clock::sleep;
use crate::dice::Dice;
use crate::world::{Host, World};
use harvest_sdk::prelude::*;
use harvest_sdk::{ActivityRegistration, WorkflowRegistration};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The signal that runs look for.
pub const SIGNAL: &str = "go";
/// The query that they answer.
pub const QUERY: &str = "progress";

pub fn workflows() -> Vec<WorkflowRegistration> {
    workflows![errand]
}

pub fn activities() -> Vec<ActivityRegistration> {
    activities![touch]
}

/// What a run is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub seed: u64,
    /// How many generations of children it may have.
    pub depth: u64,
    /// How often it continues as new.
    pub generations: u64,
}

/// Some steps, one after the other; then a successor, a failure or a result.
#[workflow]
pub async fn errand(ctx: &WorkflowContext, plan: Plan) -> Result<Vec<String>, HarvestError> {
    let (dice, done) = (Dice::new(plan.seed), Arc::new(Mutex::new(Vec::<String>::new())));
    let progress = done.clone();
    ctx.register_query(QUERY, move || progress.lock().unwrap_or_else(PoisonError::into_inner).clone());
    for number in 0..1 + dice.below(4) {
        let step = step(ctx, &dice, &plan, number).await?;
        done.lock().unwrap_or_else(PoisonError::into_inner).push(step);
    }
    if plan.generations > 0 {
        ctx.continue_as_new(Plan { seed: plan.seed.wrapping_add(1), depth: plan.depth, generations: plan.generations - 1 }).await?;
    }
    if dice.one_in(8) {
        return Err(HarvestError::InvalidArgument { field: "OnPurpose".to_owned(), message: "this code fails".to_owned() });
    }
    let done = done.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(done)
}

async fn step(ctx: &WorkflowContext, dice: &Dice, plan: &Plan, number: u64) -> Result<String, HarvestError> {
    match dice.below(if plan.depth > 0 { 13 } else { 10 }) {
        0..3 => several(ctx, dice).await,
        3 => ctx.timer("pause", dice.millis(3_000)).await.map(|()| "paused".to_owned()),
        4 | 5 => {
            let signal = ctx.receive_signal_timeout::<String>(SIGNAL, dice.millis(5_000) + Duration::from_millis(1)).await?;
            Ok(format!("{signal:?}"))
        }
        6 => {
            let mut taken = Vec::new();
            while let Some(signal) = ctx.try_receive_signal::<String>(SIGNAL)? {
                taken.push(signal);
            }
            Ok(taken.join(","))
        }
        7 => Ok(ctx.random_u64().to_string()),
        8 => cancelled(ctx, dice).await,
        9 => ctx.or_cancelled(async { ctx.timer("cancellable", dice.millis(8_000)).await }).await.map(|()| "patient".to_owned()),
        10 | 11 => {
            let shared = dice.one_in(4);
            let child = ctx.spawn_child_workflow_with_opts(&errand, child(dice, plan), options(ctx, dice, plan, number, shared));
            Ok(child.await.map_or_else(|error| error.error_type().to_owned(), |steps| format!("{} steps", steps.len())))
        }
        _ => ctx.spawn_child_workflow_detached(&errand, child(dice, plan), options(ctx, dice, plan, number, false)),
    }
}

fn child(dice: &Dice, plan: &Plan) -> Plan {
    Plan { seed: plan.seed.wrapping_mul(31).wrapping_add(dice.below(1_000)), depth: plan.depth - 1, generations: dice.below(2) }
}

fn options(ctx: &WorkflowContext, dice: &Dice, plan: &Plan, number: u64, shared: bool) -> ChildOptions {
    let id = if shared { format!("shared-{}", dice.below(3)) } else { format!("{}/{}.{number}", ctx.info().workflow_id, plan.generations) };
    ChildOptions::new().workflow_id(id)
}

/// Several activities at once.
async fn several(ctx: &WorkflowContext, dice: &Dice) -> Result<String, HarvestError> {
    let asked: Vec<_> = (0..1 + dice.below(3)).map(|_| ctx.execute_activity_with_opts(&touch, dice.below(4), attempts(dice))).collect();
    let outcomes = futures::future::join_all(asked).await;
    let said = |outcome: Result<String, HarvestError>| outcome.unwrap_or_else(|error| error.error_type().to_owned());
    Ok(outcomes.into_iter().map(said).collect::<Vec<_>>().join(" "))
}

fn attempts(dice: &Dice) -> ActivityOptions {
    let most = 1 + u32::try_from(dice.below(3)).expect("it is small");
    let retry = if most == 1 { RetryPolicy::none() } else { RetryPolicy::exponential(most, Duration::from_millis(200)) };
    let options = ActivityOptions::new().retry(retry);
    match dice.below(5) {
        0 => options.start_to_close(Duration::from_secs(2)),
        1 => options.heartbeat_timeout(Duration::from_secs(2)),
        2 => options.schedule_to_close(Duration::from_secs(4)),
        _ => options,
    }
}

/// An activity that the code gives up after a while.
async fn cancelled(ctx: &WorkflowContext, dice: &Dice) -> Result<String, HarvestError> {
    let (activity, timer) = (ctx.execute_activity_with_opts(&touch, 3, attempts(dice)), ctx.timer("patience", Duration::from_millis(200)));
    let canceller = activity.canceller();
    match futures::future::select(activity, timer).await {
        futures::future::Either::Left((done, _)) => Ok(done.map_or_else(|error| error.error_type().to_owned(), |_| "quick".to_owned())),
        futures::future::Either::Right((fired, activity)) => {
            fired?;
            canceller.cancel();
            Ok(activity.await.map_or_else(|error| error.error_type().to_owned(), |_| "anyway".to_owned()))
        }
    }
}

/// What activities of a worker work with.
pub struct Outside {
    pub world: Arc<World>,
    pub host: Arc<Host>,
}

/// Changes the world outside, which remembers; `beats` times it says that it is alive.
#[activity]
pub async fn touch(ctx: &ActivityContext, beats: u64) -> Result<String, ActivityFailure> {
    let outside = ctx.state::<Outside>().ok_or_else(|| ActivityFailure::non_retryable("Setup", "the worker was built without a world"))?;
    let (world, dice, key) = (&outside.world, &outside.host.dice, ctx.idempotency_key());
    sleep(dice.millis(20)).await;
    let effect = {
        let mut ledger = world.ledger();
        let effect = ledger.effects.entry(key.clone()).or_default();
        effect.max_attempts = ctx.max_attempts();
        effect.begun.push(ctx.attempt());
        effect.begun.len()
    };
    world.note(format_args!("{} touches {key} at attempt {} of {}", outside.host.name, ctx.attempt(), ctx.max_attempts()));
    for beat in 0..beats {
        sleep(dice.millis(100)).await;
        if ctx.heartbeat(beat).await.is_err() {
            return Err(ActivityFailure::new("Cancelled", "asked to"));
        }
    }
    sleep(dice.millis(200)).await;
    if !world.is_calm() && dice.one_in(15) {
        sleep(dice.millis(15_000)).await;
    }
    match dice.below(10) {
        0 | 1 => Err(ActivityFailure::new("OnPurpose", "this attempt fails")),
        2 => Err(ActivityFailure::new("Later", "this attempt fails").with_retry_after(Duration::from_millis(50))),
        _ => {
            let output = format!("{key}/{}/{effect}", ctx.attempt());
            world.ledger().produced.insert(output.clone());
            Ok(output)
        }
    }
}
