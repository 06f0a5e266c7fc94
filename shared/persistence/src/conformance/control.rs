//! Cases about the control tables.

use super::Subject;
use super::fixture::{Owner, namespace};
use crate::control::{Acknowledgement, Lease, LimitsChange, Member, ServiceKind, StoredLimits, StoredType, StoredWorker, TypeKind};
use harvest_ids::{Epoch, Namespace, SLOT_COUNT, ShardId, Timestamp, WorkerId};

/// A span that does not end during a case.
const LONG: u64 = 600_000;
/// A span that has ended when the call returns: everything expires at its instant, not after it.
const NOTHING: u64 = 0;

fn member(process: &str, service: ServiceKind) -> Member {
    Member { service, process_id: process.into(), address: format!("http://{process}") }
}

/// Announced until the time is up.
pub async fn members_come_and_expire(subject: &Subject) {
    let directory = &subject.directory;
    let (a, b) = (member("a", ServiceKind::History), member("b", ServiceKind::TimerScanner));
    directory.announce_member(&a, LONG).await.expect("announced");
    directory.announce_member(&b, LONG).await.expect("announced");
    let mut members = directory.members().await.expect("read");
    members.sort();
    assert_eq!(members, [a.clone(), b.clone()]);
    let moved = Member { address: "http://elsewhere".into(), ..a.clone() };
    let mut members = directory.check_in(&moved, LONG).await.expect("checked in");
    members.sort();
    assert_eq!(members, [moved.clone(), b.clone()]);
    directory.announce_member(&b, NOTHING).await.expect("announced");
    assert_eq!(directory.members().await.expect("read"), [moved]);
    directory.remove_member("a").await.expect("removed");
    directory.remove_member("a").await.expect("removing twice is fine");
    assert_eq!(directory.members().await.expect("read"), []);
}

async fn lease(subject: &Subject, shard: u32) -> Lease {
    let leases = subject.directory.leases().await.expect("read");
    assert_eq!(leases.iter().map(|lease| lease.shard_id.0).collect::<Vec<_>>(), (0..super::SHARDS).collect::<Vec<_>>());
    leases.into_iter().find(|lease| lease.shard_id.0 == shard).expect("every shard has a lease")
}

async fn acquire(subject: &Subject, shard: u32, process: &str, ttl_ms: u64) -> bool {
    subject.directory.acquire_lease(ShardId(shard), process, &format!("http://{process}"), ttl_ms).await.expect("the call is answered")
}

/// Compare and set.
pub async fn a_lease_is_taken_once_and_renewed_by_its_owner(subject: &Subject) {
    assert_eq!(lease(subject, 1).await.owner, None);
    assert!(lease(subject, 1).await.remaining_ms <= 0);
    assert!(acquire(subject, 1, "a", LONG).await);
    assert!(!acquire(subject, 1, "b", LONG).await);
    assert!(acquire(subject, 3, "a", LONG).await);
    assert!(acquire(subject, 2, "b", LONG).await);
    assert_eq!(subject.directory.renew_leases("a", LONG).await.expect("renewed"), [ShardId(1), ShardId(3)]);
    assert_eq!(subject.directory.renew_leases("c", LONG).await.expect("renewed"), []);
    let owner = Owner::of(&*subject.runs, 1).await;
    let held = lease(subject, 1).await;
    assert_eq!((held.owner.as_deref(), held.address.as_deref(), held.epoch), (Some("a"), Some("http://a"), owner.fence.epoch));
    assert!(held.remaining_ms > 0 && held.remaining_ms <= LONG.cast_signed(), "{held:?}");
    assert!(!acquire(subject, 999, "a", LONG).await, "a shard that is not there cannot be had");
}

/// When the time is up anybody may take it, and the old owner may not renew what another has taken.
pub async fn an_expired_lease_is_free_for_all(subject: &Subject) {
    assert!(acquire(subject, 0, "a", NOTHING).await);
    assert!(lease(subject, 0).await.remaining_ms <= 0);
    assert!(acquire(subject, 0, "b", LONG).await);
    assert_eq!(subject.directory.renew_leases("a", LONG).await.expect("renewed"), []);
    assert_eq!(lease(subject, 0).await.owner.as_deref(), Some("b"));
}

/// A hand-over.
pub async fn a_lease_is_released_or_given_to_a_successor_by_its_owner_alone(subject: &Subject) {
    let release = |process: &'static str| async move { subject.directory.release_lease(ShardId(0), process).await.expect("released") };
    let transfer = |process: &'static str, to: &'static str, ttl| async move {
        let to = Member { service: ServiceKind::History, process_id: to.into(), address: format!("http://{to}") };
        subject.directory.transfer_lease(ShardId(0), process, &to, ttl).await.expect("the call is answered")
    };
    assert!(acquire(subject, 0, "a", LONG).await);
    release("b").await;
    assert!(!transfer("b", "c", LONG).await);
    assert_eq!(lease(subject, 0).await.owner.as_deref(), Some("a"), "only the owner can");
    assert!(transfer("a", "b", LONG).await);
    let given = lease(subject, 0).await;
    assert_eq!((given.owner.as_deref(), given.address.as_deref()), (Some("b"), Some("http://b")));
    assert!(given.remaining_ms > 0 && !acquire(subject, 0, "c", LONG).await);
    assert_eq!(subject.directory.renew_leases("a", LONG).await.expect("renewed"), []);
    assert_eq!(subject.directory.renew_leases("b", LONG).await.expect("renewed"), [ShardId(0)]);
    release("b").await;
    assert_eq!(lease(subject, 0).await.owner, None);
    assert!(acquire(subject, 0, "c", LONG).await);
    assert!(transfer("c", "d", NOTHING).await);
    assert!(acquire(subject, 0, "e", LONG).await, "the successor did not come in time");
}

/// Evenly, in order.
pub async fn every_slot_has_a_shard(subject: &Subject) {
    let (version, slots) = subject.directory.slot_map().await.expect("read");
    assert_eq!((version, slots.len()), (1, usize::from(SLOT_COUNT)));
    assert!(slots.is_sorted());
    for shard in 0..super::SHARDS {
        assert_eq!(slots.iter().filter(|slot| slot.0 == shard).count(), usize::from(SLOT_COUNT) / 4);
    }
}

/// Two that change the limits at once: one wins.
pub async fn limits_change_by_compare_and_set(subject: &Subject) {
    let first = subject.config.limits().await.expect("read");
    assert_eq!(first, StoredLimits { generation: 1, number: 0, document: "{}".into() });
    let change = |expected, document: &str| LimitsChange {
        expected,
        document: document.into(),
        actor: "ops".into(),
        reason: "load".into(),
        summary: "max_workflow_attempts 3".into(),
    };
    let second = subject.config.change_limits(&change((1, 0), r#"{"a":1}"#)).await.expect("answered");
    assert_eq!(second, Some(StoredLimits { generation: 1, number: 1, document: r#"{"a":1}"#.into() }));
    assert_eq!(subject.config.change_limits(&change((1, 0), r#"{"a":2}"#)).await.expect("answered"), None);
    assert_eq!(subject.config.change_limits(&change((2, 1), r#"{"a":2}"#)).await.expect("answered"), None);
    assert_eq!(Some(subject.config.limits().await.expect("read")), second);
}

/// By epoch, then generation, then number.
pub async fn an_older_acknowledgement_never_replaces_a_newer(subject: &Subject) {
    let acknowledgement = |shard, epoch, version| Acknowledgement { shard_id: ShardId(shard), epoch: Epoch(epoch), version };
    let store = |list: Vec<Acknowledgement>| async move { subject.config.acknowledge(&list).await.expect("stored") };
    let owner = Owner::of(&*subject.runs, 2).await;
    store(vec![acknowledgement(2, 1, (1, 4)), acknowledgement(0, 1, (1, 1)), acknowledgement(2, 1, (1, 3))]).await;
    store(vec![acknowledgement(2, 1, (1, 2))]).await;
    store(vec![acknowledgement(0, 2, (1, 0))]).await;
    store(vec![acknowledgement(0, 1, (2, 9))]).await;
    store(vec![]).await;
    let all = subject.config.acknowledgements().await.expect("read");
    assert_eq!(
        all,
        [
            (ShardId(0), Epoch(0), Some(acknowledgement(0, 2, (1, 0)))),
            (ShardId(1), Epoch(0), None),
            (ShardId(2), owner.fence.epoch, Some(acknowledgement(2, 1, (1, 4)))),
            (ShardId(3), Epoch(0), None),
        ]
    );
}

/// One row per namespace and name.
pub async fn types_are_replaced_by_their_newest_declaration(subject: &Subject) {
    let of = |kind: TypeKind, space: &str, name: &str, info: &[u8]| StoredType { kind, namespace: namespace(space), name: name.into(), info: info.to_vec() };
    let declared = |space: &str, name: &str, info: &[u8]| of(TypeKind::Workflow, space, name, info);
    let activity = of(TypeKind::Activity, "a", "order", b"of another kind");
    subject.config.register_types(&[]).await.expect("nothing to store");
    subject
        .config
        .register_types(&[declared("a", "order", b"1"), declared("b", "order", b"2"), declared("a", "refund", b"3"), activity.clone()])
        .await
        .expect("stored");
    subject.config.register_types(&[declared("a", "order", b"4"), declared("a", "order", b"\0")]).await.expect("stored");
    let mut types = subject.config.types().await.expect("read");
    types.sort_by(|a, b| (a.kind, &a.namespace, &a.name).cmp(&(b.kind, &b.namespace, &b.name)));
    assert_eq!(types, [declared("a", "order", b"\0"), declared("a", "refund", b"3"), declared("b", "order", b"2"), activity]);
}

/// Sessions by the store's clock.
pub async fn workers_are_reported_ended_and_forgotten(subject: &Subject) {
    let worker = |id: &str, hello: &[u8]| StoredWorker {
        worker_id: WorkerId::new(id).expect("a name"),
        namespace: Namespace::default(),
        hello: hello.to_vec(),
        last_seen: Timestamp::from_millis(0),
    };
    let names = |workers: Vec<StoredWorker>| workers.iter().map(|worker| worker.worker_id.to_string()).collect::<Vec<_>>();
    let report = |seen: Vec<StoredWorker>, ended: Vec<WorkerId>, ttl| async move { subject.config.report_workers(&seen, &ended, ttl).await.expect("stored") };
    report(vec![worker("a", b"1"), worker("b", b"2"), worker("c", b"3")], vec![], LONG).await;
    report(vec![worker("a", b"4"), worker("b", b"5")], vec![worker("b", b"").worker_id], LONG).await;
    let mut workers = subject.config.workers(LONG).await.expect("read");
    workers.sort_by(|a, b| a.worker_id.cmp(&b.worker_id));
    assert!(workers.iter().all(|worker| worker.last_seen.as_millis() > 1_700_000_000_000), "by the store's clock, in milliseconds: {workers:?}");
    assert_eq!(workers[0].hello, b"4");
    assert_eq!(names(workers), ["a", "c"]);
}
