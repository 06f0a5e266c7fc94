//! Directories on a store in memory and a manual clock.

use super::*;
use crate::fake::{Fleet, settle};
use std::sync::atomic::Ordering;

fn member(name: &str) -> Member {
    Member { service: ServiceKind::Matching, process_id: name.to_owned(), address: format!("http://{name}") }
}

#[tokio::test]
async fn members_appear_and_leave_and_changes_are_told() {
    let fleet = Fleet::new(4);
    let (stop_a, stop_b) = (CancellationToken::new(), CancellationToken::new());
    let (a, b) = (fleet.directory(stop_a.clone()).await, fleet.directory(stop_b.clone()).await);
    let mut changes = b.changes();
    changes.borrow_and_update();
    a.announce(member("a")).await.unwrap();
    fleet.pass(Duration::from_secs(2)).await;
    assert!(changes.has_changed().unwrap());
    assert_eq!(b.members(ServiceKind::Matching), [member("a")]);
    assert!(b.members(ServiceKind::Config).is_empty());
    stop_a.cancel();
    fleet.pass(Duration::from_secs(2)).await;
    assert!(b.members(ServiceKind::Matching).is_empty());
    stop_b.cancel();
    settle().await;
}

#[tokio::test]
async fn after_an_outage_nobody_is_forgotten_before_they_could_announce_again() {
    let fleet = Fleet::new(4);
    let stop = CancellationToken::new();
    let (a, b) = (fleet.directory(stop.clone()).await, fleet.directory(stop.clone()).await);
    a.announce(member("a")).await.unwrap();
    b.announce(member("b")).await.unwrap();
    fleet.pass(Duration::from_secs(2)).await;
    fleet.store.failing.store(true, Ordering::Relaxed);
    fleet.pass(Duration::from_secs(30)).await;
    fleet.store.failing.store(false, Ordering::Relaxed);
    for _ in 0..100 {
        fleet.pass(Duration::from_millis(100)).await;
        assert_eq!((a.members(ServiceKind::Matching).len(), b.members(ServiceKind::Matching).len()), (2, 2));
    }
    stop.cancel();
    settle().await;
}

#[tokio::test]
async fn a_hint_is_taken_until_the_leases_are_read_again() {
    let fleet = Fleet::new(4);
    let stop = CancellationToken::new();
    let directory = fleet.directory(stop.clone()).await;
    assert_eq!(directory.owner(ShardId(2)), None);
    directory.hint(ShardId(2), "http://x");
    assert_eq!(directory.owner(ShardId(2)).unwrap().address, "http://x");
    fleet.pass(Duration::from_secs(3)).await;
    assert_eq!(directory.owner(ShardId(2)), None);
    assert_eq!(directory.shard_of(Slot::new(6).unwrap()), Some(ShardId(2)));
    stop.cancel();
    settle().await;
}

#[tokio::test]
async fn an_owner_that_took_over_is_believed_unless_a_later_one_is_known() {
    let fleet = Fleet::new(4);
    let stop = CancellationToken::new();
    let directory = fleet.directory(stop.clone()).await;
    let owner = |name: &str, epoch| Owner { process_id: name.to_owned(), address: format!("http://{name}"), epoch: harvest_ids::Epoch(epoch) };
    assert!(directory.taken_over(ShardId(2), owner("b", 5)));
    assert!(!directory.taken_over(ShardId(2), owner("a", 4)), "its word came late");
    assert_eq!(directory.owner(ShardId(2)), Some(owner("b", 5)));
    directory.announce(member("m")).await.unwrap();
    assert_eq!(directory.owner(ShardId(2)), Some(owner("b", 5)), "members alone say nothing of owners");
    fleet.pass(Duration::from_secs(3)).await;
    assert_eq!(directory.owner(ShardId(2)), None, "the leases have the last word");
    stop.cancel();
    settle().await;
}

#[tokio::test]
async fn a_suspect_is_avoided_for_a_while_unless_there_is_nobody_else() {
    let fleet = Fleet::new(4);
    let stop = CancellationToken::new();
    let directory = fleet.directory(stop.clone()).await;
    directory.announce(member("a")).await.unwrap();
    directory.suspect("a");
    assert_eq!(directory.place(ServiceKind::Matching, "queue"), Some(member("a")));
    directory.announce(member("b")).await.unwrap();
    let placed = |key: u32| directory.place(ServiceKind::Matching, &key.to_string()).unwrap().process_id;
    assert!((0..50).all(|key| placed(key) == "b"));
    fleet.pass(Duration::from_secs(4)).await;
    assert!((0..50).any(|key| placed(key) == "a"));
    stop.cancel();
    settle().await;
}

#[tokio::test]
async fn refreshes_asked_for_at_once_share_one_read() {
    let fleet = Fleet::new(4);
    let stop = CancellationToken::new();
    let directory = fleet.directory(stop.clone()).await;
    let before = fleet.store.statements.load(Ordering::Relaxed);
    let asked: Vec<_> = (0..20).map(|_| directory.clone()).map(|directory| async move { directory.refresh_now().await }).collect();
    let asked: Vec<_> = asked.into_iter().map(|refresh| harvest_runtime::spawn("refresh", refresh)).collect();
    fleet.pass(Duration::from_millis(200)).await;
    for refresh in asked {
        refresh.await.unwrap().unwrap();
    }
    assert!(fleet.store.statements.load(Ordering::Relaxed) - before <= 4);
    stop.cancel();
    settle().await;
}
