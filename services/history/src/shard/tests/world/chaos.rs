//! What goes wrong.

use super::super::faulty::{Fate, Faults, Outage};
use super::World;
use super::worker;
use harvest_ids::ShardId;
use harvest_runtime::{Clock, spawn};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Lets things go wrong for a while, then puts right what does not come right by itself.
pub(super) async fn run(world: &Arc<World>, span: Duration) {
    let end = world.clock.monotonic() + span;
    while world.clock.monotonic() < end {
        world.pause(700).await;
        let shard_id = ShardId(u32::try_from(world.dice.below(u64::from(super::SHARDS))).unwrap());
        match world.dice.below(16) {
            0 | 1 => kill(world, shard_id).await,
            2 | 3 => freeze(world, shard_id).await,
            4 => world.take_over(shard_id).await, // two owners at once
            5 => hand_over(world, shard_id).await,
            6..9 => fate(world, shard_id),
            9 => faults(world, shard_id, Faults::fail_reads),
            10 => faults(world, shard_id, Faults::hold_commits),
            11 => worker::restart(world),
            12 => matching_dies(world).await,
            13 => outage(world, shard_id, Outage::Full),
            14 => outage(world, shard_id, Outage::Away),
            _ => frontends_die(world).await,
        }
    }
    // Owners that were killed stay dead; the present ones work.
    let owners = world.owners();
    for owner in owners.values().filter_map(|owners| owners.last()) {
        owner.faults.fail_reads(false);
        owner.faults.hold_commits(false);
        owner.faults.set_outage(Outage::None);
    }
}

/// The present owner's switches.
fn switches(world: &World, shard_id: ShardId) -> Arc<Faults> {
    world.owners()[&shard_id].last().unwrap().faults.clone()
}

async fn kill(world: &Arc<World>, shard_id: ShardId) {
    world.note(format_args!("the owner of shard {shard_id} is killed"));
    switches(world, shard_id).freeze(true);
    world.pause(1_000).await;
    world.take_over(shard_id).await;
}

/// The owner is stopped at any point of its loop, replaced, and goes on later.
async fn freeze(world: &Arc<World>, shard_id: ShardId) {
    world.note(format_args!("the owner of shard {shard_id} freezes"));
    let old = switches(world, shard_id);
    old.freeze(true);
    world.pause(1_000).await;
    world.take_over(shard_id).await;
    let world = world.clone();
    drop(spawn("thaw", async move {
        world.pause(4_000).await;
        world.note(format_args!("an old owner of shard {shard_id} goes on"));
        old.freeze(false);
    }));
}

async fn hand_over(world: &Arc<World>, shard_id: ShardId) {
    let (stopper, mut handle) = {
        let mut owners = world.owners();
        let owner = owners.get_mut(&shard_id).and_then(|owners| owners.last_mut()).unwrap();
        (owner.stopper.take(), owner.handle.clone())
    };
    world.note(format_args!("shard {shard_id} is handed over"));
    if let Some(stopper) = stopper {
        stopper.stop();
    }
    // It may be unable to: then it is replaced all the same.
    if tokio::time::timeout(Duration::from_secs(1), handle.stopped()).await.is_err() {
        world.note(format_args!("the old owner of shard {shard_id} does not end in time"));
    }
    world.take_over(shard_id).await;
}

fn fate(world: &World, shard_id: ShardId) {
    let fates = [Fate::Poisoned, Fate::Unavailable, Fate::UnknownLanded, Fate::UnknownLost, Fate::UnknownLate];
    let fate = fates[world.dice.index(fates.len())];
    world.note(format_args!("a commit of shard {shard_id} is to be {fate:?}"));
    switches(world, shard_id).script([fate]);
}

/// Turns a fault on for a while.
fn faults(world: &Arc<World>, shard_id: ShardId, turn: fn(&Faults, bool)) {
    world.note(format_args!("the store of shard {shard_id} is in trouble"));
    let switches = switches(world, shard_id);
    turn(&switches, true);
    let world = world.clone();
    drop(spawn("recovery", async move {
        world.pause(2_000).await;
        turn(&switches, false);
    }));
}

/// The store takes nothing for a while, mostly for longer than callers are made to wait.
fn outage(world: &Arc<World>, shard_id: ShardId, outage: Outage) {
    world.note(format_args!("the store of shard {shard_id} is {outage:?}"));
    let switches = switches(world, shard_id);
    switches.set_outage(outage);
    let world = world.clone();
    drop(spawn("recovery", async move {
        world.pause(9_000).await;
        switches.set_outage(Outage::None);
    }));
}

async fn matching_dies(world: &World) {
    world.note(format_args!("matching dies"));
    world.net.matching_down.store(true, Ordering::Relaxed);
    world.net.forget_offers();
    world.pause(500).await;
    world.net.matching_down.store(false, Ordering::Relaxed);
    world.net.forget_offers();
}

async fn frontends_die(world: &World) {
    world.net.frontends_down.store(true, Ordering::Relaxed);
    world.pause(2_000).await;
    world.net.frontends_down.store(false, Ordering::Relaxed);
}
