//! Cases about the one way in which runs are written.

use super::Subject;
use super::fixture::{Owner, activity_task, at, change, closed, due, events, id, message, open, run, task, workflow_task};
use crate::batch::{Batch, BatchId, RunRow};
use crate::error::{CommitError, StoreError};
use crate::store::{Fence, Recovery, StoredRun};
use bytes::Bytes;
use harvest_ids::{Epoch, Namespace, ShardId, Timestamp};
use harvest_workflow_core::state::Status;

const SHARD: ShardId = ShardId(0);

async fn load(subject: &Subject, number: u64) -> Option<StoredRun> {
    subject.runs.load_run(SHARD, id(number)).await.expect("the run can be read")
}

async fn loaded(subject: &Subject, number: u64) -> StoredRun {
    load(subject, number).await.expect("the run is there")
}

async fn fence(subject: &Subject, owner: &Owner) -> u64 {
    let batch = BatchId { shard_id: owner.shard, epoch: owner.fence.epoch, batch_seq: 0 };
    subject.runs.settle(batch).await.expect("the fence can be read").expect("the shard is ours").batch_seq
}

/// Two runs with everything a run can have.
fn beginning() -> Batch {
    Batch {
        runs_new: vec![full_row(1), run(2)],
        history: vec![events(1, 1, 2, b"one"), events(2, 1, 1, b"two")],
        tasks_new: vec![task(workflow_task(1), 1), task(activity_task(1, 5), 2), task(workflow_task(2), 3)],
        due_new: vec![due(1, 5000), due(2, 6000)],
        outbox_new: vec![message(1, 2, b"hello"), message(2, 1, b"you")],
        ..Batch::default()
    }
}

fn full_row(number: u64) -> RunRow {
    let mut row = run(number);
    row.parent_execution_id = Some(id(900));
    row.first_execution_id = id(901);
    row.execution_timeout_ms = Some(60_000);
    row.mutable.blocked_at = Some(at(77));
    row.mutable.blocked_reason = Some("expected a timer".into());
    row.mutable.continued_as = Some(id(902));
    row
}

/// What is committed is read back as it was.
pub async fn a_committed_batch_is_read_back_whole(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(beginning()).await;
    let one = loaded(subject, 1).await;
    assert_eq!(one.row, full_row(1));
    assert_eq!(one.records, vec![Bytes::from_static(b"one")]);
    assert_eq!(one.tasks, vec![task(workflow_task(1), 1), task(activity_task(1, 5), 2)]);
    assert_eq!(one.due_at, Some(at(5000)));
    let two = loaded(subject, 2).await;
    assert_eq!((two.row, two.due_at), (run(2), Some(at(6000))));
    assert_eq!(load(subject, 3).await, None);
    assert_eq!(subject.runs.outbox(SHARD, 0, 10).await.expect("read"), vec![message(1, 2, b"hello"), message(2, 1, b"you")]);
    assert_eq!(fence(subject, &owner).await, owner.fence.batch_seq);
}

/// Updates and deletes of every table, beside inserts into it.
pub async fn every_kind_of_row_changes_and_goes(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(beginning()).await;
    owner
        .commit(Batch {
            runs_new: vec![run(3)],
            runs_changed: vec![change(1, open(9)), change(2, closed(Status::Completed, 4, 1234))],
            history: vec![events(1, 3, 7, b"more"), events(2, 2, 3, b"end"), events(3, 1, 1, b"three")],
            tasks_new: vec![task(activity_task(1, 8), 4)],
            tasks_gone: vec![workflow_task(1), workflow_task(2)],
            due_new: vec![due(3, 7000)],
            due_changed: vec![due(1, 5500)],
            due_gone: vec![id(2)],
            outbox_new: vec![message(3, 3, b"third")],
            outbox_gone: vec![1, 2],
        })
        .await;
    let one = loaded(subject, 1).await;
    assert_eq!(one.row.mutable, open(9));
    assert_eq!(one.records, vec![Bytes::from_static(b"one"), Bytes::from_static(b"more")]);
    assert_eq!(one.tasks, vec![task(activity_task(1, 5), 2), task(activity_task(1, 8), 4)]);
    assert_eq!(one.due_at, Some(at(5500)));
    let two = loaded(subject, 2).await;
    assert_eq!(two.row.mutable, closed(Status::Completed, 4, 1234));
    assert_eq!((two.tasks, two.due_at), (vec![], None));
    assert_eq!(loaded(subject, 3).await.due_at, Some(at(7000)));
    assert_eq!(subject.runs.outbox(SHARD, 0, 10).await.expect("read"), vec![message(3, 3, b"third")]);
}

/// The batch of `every_kind_of_row_changes_and_goes`, under an epoch that is not the shard's.
pub async fn a_wrong_epoch_with_every_array_full_changes_nothing(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(beginning()).await;
    let full = Batch {
        runs_new: vec![run(3)],
        runs_changed: vec![change(1, closed(Status::Failed, 9, 1))],
        history: vec![events(1, 3, 7, b"more")],
        tasks_new: vec![task(activity_task(1, 8), 4)],
        tasks_gone: vec![workflow_task(1)],
        due_new: vec![due(3, 7000)],
        due_changed: vec![due(1, 5500)],
        due_gone: vec![id(2)],
        outbox_new: vec![message(3, 3, b"third")],
        outbox_gone: vec![1],
    };
    for epoch in [owner.fence.epoch.0 - 1, owner.fence.epoch.0 + 1] {
        let mut writer = subject.runs.open_writer(SHARD, Epoch(epoch)).await.expect("a writer of any epoch can be opened");
        let outcome = writer.commit(BatchId { shard_id: SHARD, epoch: Epoch(epoch), batch_seq: 99 }, &full).await;
        assert!(matches!(outcome, Err(CommitError::ShardLost)), "{outcome:?}");
    }
    let one = loaded(subject, 1).await;
    assert_eq!((one.row, one.records.len(), one.tasks.len(), one.due_at), (full_row(1), 1, 2, Some(at(5000))));
    assert_eq!(loaded(subject, 2).await.due_at, Some(at(6000)));
    assert_eq!(load(subject, 3).await, None);
    assert_eq!(subject.runs.outbox(SHARD, 0, 10).await.expect("read").len(), 2);
    assert_eq!(fence(subject, &owner).await, owner.fence.batch_seq);
}

/// One open run per namespace, type and workflow id; another type or namespace is another key.
pub async fn a_second_open_run_of_a_business_key_is_poison_and_writes_nothing(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(Batch { runs_new: vec![run(1)], ..Batch::default() }).await;
    let twin = |number| RunRow { workflow_id: run(1).workflow_id, ..run(number) };
    let batch = Batch { runs_new: vec![run(5), twin(2)], history: vec![events(5, 1, 1, b"x")], ..Batch::default() };
    let outcome = owner.try_commit(&batch).await;
    assert!(matches!(outcome, Err(CommitError::Poisoned(_))), "{outcome:?}");
    assert_eq!(load(subject, 5).await, None);
    owner.fence.batch_seq -= 1;
    let others = vec![
        RunRow { namespace: Namespace::new("other").expect("a name"), ..twin(2) },
        RunRow { workflow_type: super::fixture::workflow_type("refund"), ..twin(3) },
        RunRow { mutable: closed(Status::Completed, 3, 1), ..twin(4) },
    ];
    owner.commit(Batch { runs_new: others, ..Batch::default() }).await;
    assert!(load(subject, 4).await.is_some(), "the writer works on after a poisoned batch");
}

/// Continue-as-new: the old run's row leaves the unique index before the new one enters it.
pub async fn a_run_may_close_and_its_successor_open_in_one_batch(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(Batch { runs_new: vec![run(1)], ..Batch::default() }).await;
    let successor = RunRow { workflow_id: run(1).workflow_id, first_execution_id: id(1), ..run(2) };
    let mut ended = closed(Status::ContinuedAsNew, 5, 2000);
    ended.continued_as = Some(id(2));
    owner.commit(Batch { runs_new: vec![successor.clone()], runs_changed: vec![change(1, ended.clone())], ..Batch::default() }).await;
    assert_eq!(loaded(subject, 1).await.row.mutable, ended);
    assert_eq!(loaded(subject, 2).await.row, successor);
}

/// Deletes come before inserts of the same table, so that a sequence or key may be taken over within a batch by another row.
pub async fn a_row_that_is_born_and_gone_elsewhere_in_the_batch_does_not_collide(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(beginning()).await;
    owner
        .commit(Batch {
            tasks_gone: vec![workflow_task(1), activity_task(1, 5)],
            tasks_new: vec![task(activity_task(1, 6), 1)],
            due_gone: vec![id(1)],
            due_changed: vec![due(2, 6001)],
            outbox_gone: vec![2],
            outbox_new: vec![message(3, 1, b"next")],
            ..Batch::default()
        })
        .await;
    assert_eq!(loaded(subject, 1).await.tasks, vec![task(activity_task(1, 6), 1)]);
    assert_eq!(loaded(subject, 2).await.due_at, Some(at(6001)));
    let sequences: Vec<_> = subject.runs.outbox(SHARD, 0, 10).await.expect("read").iter().map(|row| row.sequence).collect();
    assert_eq!(sequences, [1, 3]);
}

/// Whatever a batch changes or deletes must be there: anything else is a bug of the engine, and must not half-commit.
pub async fn a_missing_row_is_poison_and_writes_nothing(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(beginning()).await;
    let batches = [
        Batch { runs_changed: vec![change(1, open(9)), change(8, open(2))], ..Batch::default() },
        Batch { tasks_gone: vec![workflow_task(8)], ..Batch::default() },
        Batch { due_changed: vec![due(8, 1)], ..Batch::default() },
        Batch { due_gone: vec![id(8)], ..Batch::default() },
        Batch { outbox_gone: vec![8], ..Batch::default() },
    ];
    let before = owner.fence.batch_seq;
    for mut batch in batches {
        batch.runs_new.push(run(5));
        let outcome = owner.try_commit(&batch).await;
        assert!(matches!(outcome, Err(CommitError::Poisoned(_))), "{outcome:?} for {batch:?}");
    }
    assert_eq!(load(subject, 5).await, None);
    assert_eq!(loaded(subject, 1).await.row, full_row(1));
    assert_eq!(fence(subject, &owner).await, before);
}

/// A record has one number.
pub async fn a_second_history_row_of_one_number_is_poison(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(beginning()).await;
    let outcome = owner.try_commit(&Batch { history: vec![events(1, 1, 1, b"again")], ..Batch::default() }).await;
    assert!(matches!(outcome, Err(CommitError::Poisoned(_))), "{outcome:?}");
    let outcome = owner.try_commit(&Batch { runs_new: vec![run(1)], ..Batch::default() }).await;
    assert!(matches!(outcome, Err(CommitError::Poisoned(_))), "{outcome:?}");
}

/// The epoch decides who writes, and nothing else.
pub async fn a_takeover_fences_the_old_writer(subject: &Subject) {
    let mut old = Owner::of(&*subject.runs, 0).await;
    old.commit(beginning()).await;
    let mut new = Owner::of(&*subject.runs, 0).await;
    assert_eq!(new.fence, Fence { epoch: old.fence.epoch.next(), batch_seq: old.fence.batch_seq });
    let outcome = old.try_commit(&Batch { runs_new: vec![run(5)], ..Batch::default() }).await;
    assert!(matches!(outcome, Err(CommitError::ShardLost)), "{outcome:?}");
    assert_eq!(load(subject, 5).await, None);
    new.commit(Batch { runs_new: vec![run(6)], ..Batch::default() }).await;
    assert_eq!(subject.runs.epoch(SHARD).await.expect("read"), new.fence.epoch);
}

/// After an unknown outcome the fence row tells, and the epoch is a new one.
pub async fn settling_tells_a_batch_that_landed_from_one_that_did_not(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(beginning()).await;
    let landed = BatchId { shard_id: SHARD, epoch: owner.fence.epoch, batch_seq: owner.fence.batch_seq };
    let settled = subject.runs.settle(landed).await.expect("settles").expect("the shard is still ours");
    assert_eq!(settled, Fence { epoch: landed.epoch.next(), batch_seq: landed.batch_seq });
    let missing = BatchId { epoch: settled.epoch, batch_seq: settled.batch_seq + 1, ..landed };
    let settled = subject.runs.settle(missing).await.expect("settles").expect("the shard is still ours");
    assert_eq!(settled.batch_seq, landed.batch_seq, "the second batch was never sent");
    let outcome = owner.try_commit(&Batch::default()).await;
    assert!(matches!(outcome, Err(CommitError::ShardLost)), "a writer of the old epoch is fenced off: {outcome:?}");
}

/// Settling never takes a shard back.
pub async fn settling_a_lost_shard_says_so(subject: &Subject) {
    let old = Owner::of(&*subject.runs, 0).await;
    let new = Owner::of(&*subject.runs, 0).await;
    let batch = BatchId { shard_id: SHARD, epoch: old.fence.epoch, batch_seq: 1 };
    assert_eq!(subject.runs.settle(batch).await.expect("settles"), None);
    assert_eq!(subject.runs.epoch(SHARD).await.expect("read"), new.fence.epoch);
}

/// The largest batch of the engine.
pub async fn a_full_batch_of_256_runs_commits(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    let numbers = || 1..=256u64;
    let payload = vec![7u8; 16 * 1024];
    owner
        .commit(Batch {
            runs_new: numbers().map(run).collect(),
            history: numbers().map(|number| events(number, 1, 2, &payload)).collect(),
            tasks_new: numbers().map(|number| task(workflow_task(number), number.cast_signed())).collect(),
            due_new: numbers().map(|number| due(number, 5000)).collect(),
            ..Batch::default()
        })
        .await;
    owner
        .commit(Batch {
            runs_changed: numbers().map(|number| change(number, closed(Status::Completed, 5, 3000))).collect(),
            history: numbers().map(|number| events(number, 3, 3, &payload)).collect(),
            tasks_gone: numbers().map(workflow_task).collect(),
            due_gone: numbers().map(id).collect(),
            ..Batch::default()
        })
        .await;
    let last = loaded(subject, 256).await;
    assert_eq!((last.row.mutable.status, last.records.len(), last.tasks.len(), last.due_at), (Status::Completed, 2, 0, None));
}

/// A batch without rows is a fence check that moves the number.
pub async fn an_empty_batch_moves_the_fence_only(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(Batch::default()).await;
    assert_eq!(fence(subject, &owner).await, owner.fence.batch_seq);
    assert_eq!(subject.runs.recovery(SHARD).await.expect("read"), Recovery::default());
}

/// Payloads are bytes; a worker's message may hold U+0000.
pub async fn bytes_that_no_text_can_hold_survive(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut row = run(1);
    row.mutable.blocked_reason = Some("a\0b é 日".into());
    row.started_at = Timestamp::from_millis(i64::MAX - 1);
    owner
        .commit(Batch {
            runs_new: vec![row.clone()],
            history: vec![events(1, 1, 1, &every_byte)],
            outbox_new: vec![message(i64::MAX, 1, b"\0")],
            ..Batch::default()
        })
        .await;
    let one = loaded(subject, 1).await;
    assert_eq!((one.row, &one.records[0][..]), (row, &every_byte[..]));
    assert_eq!(subject.runs.outbox(SHARD, 0, 1).await.expect("read"), vec![message(i64::MAX, 1, b"\0")]);
}

/// Everything belongs to one shard.
pub async fn shards_do_not_see_each_other(subject: &Subject) {
    let mut zero = Owner::of(&*subject.runs, 0).await;
    let mut three = Owner::of(&*subject.runs, 3).await;
    zero.commit(beginning()).await;
    three.commit(beginning()).await;
    three
        .commit(Batch {
            runs_changed: vec![change(1, open(50))],
            tasks_gone: vec![workflow_task(2)],
            outbox_gone: vec![1],
            due_gone: vec![id(1)],
            ..Batch::default()
        })
        .await;
    assert_eq!(loaded(subject, 1).await.row, full_row(1));
    assert_eq!(loaded(subject, 1).await.due_at, Some(at(5000)));
    assert_eq!(loaded(subject, 2).await.tasks.len(), 1);
    assert_eq!(subject.runs.outbox(SHARD, 0, 10).await.expect("read").len(), 2);
    assert_eq!(subject.runs.load_run(ShardId(1), id(1)).await.expect("read"), None);
    assert_eq!(zero.fence.batch_seq, 1);
    assert_eq!(fence(subject, &zero).await, 1);
    assert_eq!(fence(subject, &three).await, 2);
}

/// A fleet has the shards that its migration made.
pub async fn a_shard_that_does_not_exist_is_refused(subject: &Subject) {
    let beyond = ShardId(super::SHARDS);
    assert!(matches!(subject.runs.take_over(beyond).await, Err(StoreError::Refused(_))));
    assert!(matches!(subject.runs.epoch(beyond).await, Err(StoreError::Refused(_))));
}
