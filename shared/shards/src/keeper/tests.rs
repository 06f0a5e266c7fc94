//! Several history processes on a store in memory and a manual clock.

use super::*;
use crate::fake::{Fleet, Process, settle};
use std::sync::atomic::Ordering;

const SECOND: Duration = Duration::from_secs(1);

fn all(processes: &[&Process]) -> usize {
    processes.iter().map(|process| process.shards().len()).sum()
}

#[tokio::test]
async fn a_newcomer_is_handed_half_and_no_shard_is_open_twice() {
    let fleet = Fleet::new(16);
    let a = fleet.start("a").await;
    fleet.pass(SECOND).await;
    assert_eq!(a.shards().len(), 16);
    let b = fleet.start("b").await;
    let took = fleet.until(SECOND * 6, || (a.shards().len(), b.shards().len()) == (8, 8)).await;
    assert!(took.is_some(), "{:?} {:?}", a.shards(), b.shards());
    assert!(a.shards().is_disjoint(&b.shards()));
    let before = (a.shards(), b.shards());
    fleet.pass(SECOND * 10).await;
    assert_eq!((a.shards(), b.shards()), before, "nothing moves in a balanced fleet");
}

#[tokio::test]
async fn the_shards_of_a_killed_owner_are_open_elsewhere_within_two_and_a_half_seconds() {
    for phase in 0..10 {
        let fleet = Fleet::new(16);
        let (a, b, c) = (fleet.start("a").await, fleet.start("b").await, fleet.start("c").await);
        fleet.until(SECOND * 8, || [&a, &b, &c].iter().all(|process| process.shards().len() >= 5)).await.expect("balanced");
        fleet.pass(Duration::from_millis(100) * phase).await;
        let lost = a.kill();
        assert!(!lost.is_empty());
        let took = fleet.until(SECOND * 5, || all(&[&b, &c]) == 16).await.expect("taken over");
        assert!(took <= Duration::from_millis(2_500), "{took:?}");
        fleet.pass(SECOND * 10).await;
        assert_eq!(all(&[&b, &c]), 16);
    }
}

#[tokio::test]
async fn many_shards_of_a_killed_owner_are_asked_for_side_by_side() {
    let fleet = Fleet::new(32);
    let (a, b) = (fleet.start("a").await, fleet.start("b").await);
    fleet.until(SECOND * 20, || a.shards().len() == 16 && b.shards().len() == 16).await.expect("balanced");
    // One after the other they would take 16 times as long.
    fleet.store.acquire_ms.store(100, Ordering::Relaxed);
    a.kill();
    let first = fleet.until(SECOND * 5, || b.shards().len() > 16).await.expect("the first is taken over");
    let all = fleet.until(SECOND * 5, || b.shards().len() == 32).await.expect("all are taken over");
    assert!(all <= Duration::from_millis(500), "{all:?} after the first, which took {first:?}");
}

#[tokio::test]
async fn a_process_that_ends_in_order_hands_everything_over() {
    let fleet = Fleet::new(8);
    let (a, b) = (fleet.start("a").await, fleet.start("b").await);
    fleet.until(SECOND * 6, || a.shards().len() == 4 && b.shards().len() == 4).await.expect("balanced");
    a.stop.cancel();
    let took = fleet.until(SECOND * 3, || b.shards().len() == 8).await.expect("taken over");
    assert!(took <= Duration::from_millis(50), "{took:?}: a successor that is told does not wait for its next look");
    assert!(a.keeper.is_finished());
}

#[tokio::test]
async fn a_successor_that_is_not_told_finds_its_shards_at_its_next_renewal() {
    let fleet = Fleet::new(8);
    let (a, b) = (fleet.start("a").await, fleet.start("b").await);
    fleet.until(SECOND * 6, || a.shards().len() == 4 && b.shards().len() == 4).await.expect("balanced");
    fleet.doors.lock().unwrap().remove("b");
    a.stop.cancel();
    let took = fleet.until(SECOND * 3, || b.shards().len() == 8).await.expect("taken over");
    assert!(took <= LeaseOptions::default().renew_interval + Duration::from_millis(20), "{took:?}");
}

#[tokio::test]
async fn a_shard_said_to_be_handed_over_is_not_taken_from_its_owner() {
    let fleet = Fleet::new(2);
    let (a, b) = (fleet.start("a").await, fleet.start("b").await);
    fleet.until(SECOND * 6, || a.shards().len() == 1 && b.shards().len() == 1).await.expect("balanced");
    let (door, shard) = (fleet.doors.lock().unwrap()["b"].clone(), *a.shards().first().unwrap());
    let epoch = a.host.open.lock().unwrap()[&shard];
    tokio::time::timeout(SECOND * 10, door.take(shard)).await.expect("there is nothing to wait for");
    fleet.pass(SECOND * 3).await;
    assert_eq!((a.host.open.lock().unwrap().get(&shard), b.shards().len()), (Some(&epoch), 1));
}

#[tokio::test]
async fn one_that_gave_shards_away_is_trusted_with_them_again() {
    let fleet = Fleet::new(8);
    let a = fleet.start("a").await;
    fleet.pass(SECOND).await;
    let b = fleet.start("b").await;
    fleet.until(SECOND * 6, || a.shards().len() == 4 && b.shards().len() == 4).await.expect("balanced");
    b.stop.cancel();
    let took = fleet.until(SECOND * 3, || a.shards().len() == 8).await.expect("taken back");
    assert!(took <= Duration::from_millis(50), "{took:?}");
}

#[tokio::test]
async fn an_outage_of_the_store_closes_nothing_and_moves_nothing() {
    let fleet = Fleet::new(8);
    let (a, b) = (fleet.start("a").await, fleet.start("b").await);
    fleet.until(SECOND * 6, || a.shards().len() == 4 && b.shards().len() == 4).await.expect("balanced");
    let before = (a.shards(), b.shards());
    fleet.store.failing.store(true, Ordering::Relaxed);
    fleet.pass(SECOND * 20).await;
    assert_eq!((a.shards(), b.shards()), before);
    fleet.store.failing.store(false, Ordering::Relaxed);
    fleet.pass(SECOND * 10).await;
    assert_eq!((a.shards(), b.shards()), before);
}

#[tokio::test]
async fn a_shard_lost_to_a_fence_is_opened_again_while_its_lease_is_held() {
    let fleet = Fleet::new(2);
    let a = fleet.start("a").await;
    fleet.pass(SECOND).await;
    a.host.open.lock().unwrap().remove(&ShardId(1));
    fleet.until(SECOND, || a.shards().len() == 2).await.expect("opened again");
}

#[tokio::test]
async fn a_shard_that_does_not_open_is_tried_again() {
    let fleet = Fleet::new(1);
    let a = fleet.start("a").await;
    fleet.until(SECOND, || a.shards().len() == 1).await.expect("opened");
    // The lease is there, the shard is lost, and the store is away when it is opened.
    a.host.open.lock().unwrap().clear();
    fleet.pass(Duration::from_millis(690)).await;
    fleet.store.failing.store(true, Ordering::Relaxed);
    fleet.pass(SECOND).await;
    fleet.store.failing.store(false, Ordering::Relaxed);
    fleet.until(SECOND * 2, || a.shards().len() == 1).await.expect("opened again");
}

#[tokio::test]
async fn an_idle_history_process_sends_few_statements() {
    let fleet = Fleet::new(16);
    let (a, b) = (fleet.start("a").await, fleet.start("b").await);
    fleet.until(SECOND * 8, || a.shards().len() == 8 && b.shards().len() == 8).await.expect("balanced");
    fleet.pass(SECOND * 10).await;
    let before = fleet.store.statements.load(Ordering::Relaxed);
    fleet.pass(SECOND * 60).await;
    let sent = fleet.store.statements.load(Ordering::Relaxed) - before;
    // Two processes: announce 0.67, leases 1, renew 1.43 a second each.
    assert!(sent <= 2 * 60 * 33 / 10, "{sent} statements in a minute");
    settle().await;
}
