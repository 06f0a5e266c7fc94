//! More pending tasks than memory holds.

use super::stage::{Owner, Stage, start, started};
use crate::shard::actor::Tuning;
use crate::shard::neighbours::{Offer, OfferKind};
use crate::shard::operation::Answer;
use futures::future::join_all;
use harvest_ids::ExecutionId;
use harvest_runtime::Clock;
use std::collections::BTreeSet;
use std::time::Duration;

async fn start_many(owner: &Owner, prefix: &str, count: usize) -> Vec<ExecutionId> {
    let mut ids = Vec::new();
    for chunk in 0..count / 500 {
        let starts = (0..500).map(|number| owner.call(start(&format!("{prefix}-{chunk}-{number}"))));
        ids.extend(join_all(starts.collect::<Vec<_>>()).await.into_iter().map(started));
    }
    ids
}

/// Takes everything that is offered, in order, until nothing more comes.
async fn drain(stage: &Stage, owner: &Owner, mut meanwhile: impl FnMut(usize)) -> Vec<Offer> {
    let mut taken = Vec::new();
    loop {
        stage.rest().await;
        let offers = stage.fleet.take_offers();
        if offers.is_empty() {
            return taken;
        }
        for offer in offers {
            if matches!(owner.take(&offer, "w").await, Ok(Answer::WorkflowTask(_))) {
                taken.push(offer);
            }
            meanwhile(taken.len());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_tasks_of_a_large_backlog_are_offered_oldest_first_and_none_is_lost() {
    let stage = Stage::new(1).await;
    let tuning = Tuning { cached_runs: 100, ..Tuning::default() };
    let owner = stage.open_with(0, tuning, stage.clock.clone()).await;
    stage.fleet.inner().window = 10;
    let runs = start_many(&owner, "early", 2500).await;
    let taken = drain(&stage, &owner, |_| {}).await;
    assert_eq!(taken.len(), runs.len());
    assert!(taken.windows(2).all(|pair| pair[0].sequence < pair[1].sequence), "oldest first");
    assert_eq!(taken.iter().map(|offer| offer.execution_id).collect::<BTreeSet<_>>(), runs.into_iter().collect());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_arrive_while_pages_are_read_are_not_missed() {
    let stage = Stage::new(1).await;
    let mut old = stage.open(0).await;
    stage.fleet.inner().window = 10;
    start_many(&old, "early", 2000).await;
    old.stop().await;
    stage.fleet.take_offers();
    let owner = stage.open(0).await;
    let mut answers = Vec::new();
    let taken = drain(&stage, &owner, |_| {
        if answers.len() < 1000 {
            answers.push(owner.handle.submit(start(&format!("late-{}", answers.len()))).unwrap());
        }
    })
    .await;
    assert_eq!(taken.len(), 2000 + answers.len());
}

#[tokio::test(start_paused = true)]
async fn offers_go_out_again_when_matching_comes_back_or_nobody_takes_them() {
    let stage = Stage::new(1).await;
    let owner = stage.open(0).await;
    stage.fleet.inner().matching_alive = false;
    start_many(&owner, "a", 500).await;
    stage.clock.sleep(Duration::from_secs(3)).await;
    assert_eq!(stage.fleet.take_offers(), []);
    stage.fleet.inner().matching_alive = true;
    stage.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(stage.fleet.take_offers().len(), 500);
    stage.fleet.inner().generation += 1;
    stage.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(stage.fleet.take_offers().len(), 500);
    stage.clock.sleep(Duration::from_secs(20)).await;
    let offers = stage.fleet.take_offers();
    assert_eq!(offers.len(), 500);
    assert!(offers.iter().all(|offer| offer.kind == OfferKind::Workflow));
}
