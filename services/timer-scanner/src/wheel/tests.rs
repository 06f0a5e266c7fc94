//! The wheel without anything around it.

use super::*;
use harvest_ids::Slot;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn second(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn run(number: u64) -> Run {
    (ShardId(1), ExecutionId::new(Slot::new(1).unwrap(), at(0), number))
}

fn mine() -> BTreeSet<ShardId> {
    BTreeSet::from([ShardId(1)])
}

fn due(wheel: &mut Wheel, now: i64) -> Vec<ExecutionId> {
    wheel.take_due(at(now)).remove(&ShardId(1)).unwrap_or_default()
}

#[test]
fn what_a_scan_reads_is_taken_once_when_it_is_due() {
    let mut wheel = Wheel::new(10);
    wheel.scanned(second(1), at(0), &mine(), at(10_000), &[(run(1), at(500)), (run(2), at(700))]);
    assert_eq!(wheel.next(), Some(at(500)));
    assert!(due(&mut wheel, 499).is_empty());
    assert_eq!(due(&mut wheel, 700), [run(1).1, run(2).1]);
    assert!(due(&mut wheel, 10_000).is_empty());
}

#[test]
fn a_row_that_stays_is_told_again_after_a_pause_and_one_that_is_gone_is_forgotten() {
    let mut wheel = Wheel::new(10);
    let rows = [(run(1), at(500))];
    wheel.scanned(second(1), at(0), &mine(), at(10_000), &rows);
    wheel.told(at(500), ShardId(1), &due(&mut Wheel::new(1), 0)); // nothing
    let sent = due(&mut wheel, 500);
    wheel.scanned(second(2), at(600), &mine(), at(10_000), &[]);
    assert_eq!(wheel.len(), 1, "it is being sent");
    wheel.told(at(600), ShardId(1), &sent);
    wheel.scanned(second(3), at(1_000), &mine(), at(10_000), &rows);
    assert!(due(&mut wheel, 1_000).is_empty(), "the owner was told less than a second ago");
    wheel.scanned(second(4), at(1_600), &mine(), at(10_000), &rows);
    assert_eq!(due(&mut wheel, 1_600).len(), 1);
    wheel.told(at(1_600), ShardId(1), &sent);
    wheel.scanned(second(5), at(3_000), &mine(), at(10_000), &rows);
    assert!(due(&mut wheel, 3_000).is_empty(), "the pause doubles");
    wheel.scanned(second(6), at(3_000), &mine(), at(10_000), &[]);
    assert_eq!((wheel.len(), wheel.count(ShardId(1))), (0, 0));
}

#[test]
fn an_owner_that_cannot_be_reached_is_told_later() {
    let mut wheel = Wheel::new(10);
    wheel.announce(second(1), run(1), at(500));
    let sent = due(&mut wheel, 500);
    wheel.not_told(at(800), ShardId(1), &sent);
    assert_eq!((due(&mut wheel, 799).len(), due(&mut wheel, 800).len()), (0, 1));
}

#[test]
fn an_announcement_is_newer_than_a_scan_that_began_before_it() {
    let mut wheel = Wheel::new(10);
    wheel.announce(second(5), run(1), at(900));
    wheel.scanned(second(4), at(0), &mine(), at(10_000), &[(run(1), at(100))]);
    wheel.scanned(second(4), at(0), &mine(), at(10_000), &[]);
    assert_eq!(wheel.next(), Some(at(900)));
    wheel.scanned(second(6), at(0), &mine(), at(10_000), &[(run(1), at(2_000))]);
    assert_eq!(wheel.next(), Some(at(2_000)), "a later scan has the last word");
}

#[test]
fn an_announcement_while_sending_is_not_lost() {
    let mut wheel = Wheel::new(10);
    wheel.announce(second(1), run(1), at(500));
    let sent = due(&mut wheel, 500);
    wheel.announce(second(2), run(1), at(900));
    wheel.told(at(600), ShardId(1), &sent);
    assert_eq!(due(&mut wheel, 900).len(), 1);
}

#[test]
fn a_scan_says_nothing_about_later_rows_and_other_shards() {
    let mut wheel = Wheel::new(10);
    let other = (ShardId(2), run(2).1);
    wheel.announce(second(1), run(1), at(5_000));
    wheel.announce(second(1), other, at(500));
    wheel.scanned(second(2), at(0), &mine(), at(5_000), &[]);
    assert_eq!(wheel.len(), 2);
    wheel.keep(&mine());
    assert_eq!((wheel.len(), wheel.count(ShardId(2))), (1, 0));
}

#[test]
fn the_capacity_bounds_what_is_remembered() {
    let mut wheel = Wheel::new(2);
    for number in 1..=3 {
        wheel.announce(second(1), run(number), at(500));
    }
    wheel.announce(second(1), run(1), at(600));
    assert_eq!((wheel.len(), due(&mut wheel, 600).len()), (2, 2));
}
