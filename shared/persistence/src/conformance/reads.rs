//! Cases about reads.

use super::Subject;
use super::fixture::{
    Owner, activity_task, at, change, closed, due, events, id, message, namespace, open, queue, run, task, workflow_id, workflow_task, workflow_type,
};
use crate::batch::{Batch, HistoryRow, RunMutable, RunRow, TaskRow};
use crate::store::{BacklogQueue, BusinessKey, Recovery, RunFilter, TaskKind};
use bytes::Bytes;
use harvest_ids::{EventId, ExecutionId, Namespace, ShardId};
use harvest_workflow_core::state::Status;

const SHARD: ShardId = ShardId(0);

/// The open run whatever its age, else the newest closed one.
pub async fn find_run_prefers_the_open_run_and_then_the_newest_closed(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    let key = run(1).workflow_id;
    let same_key = |number, status: Status| {
        let mutable = if status == Status::Running { open(1) } else { closed(status, 2, 5000) };
        RunRow { workflow_id: key.clone(), mutable, ..run(number) }
    };
    let of = |workflow_type, namespace| BusinessKey { namespace, workflow_type, workflow_id: key.clone() };
    let wanted = of(workflow_type("order"), Namespace::default());
    let find = |keys: Vec<BusinessKey>| async move { subject.runs.find_runs(SHARD, &keys).await.expect("read") };
    assert_eq!(find(vec![]).await, []);
    assert_eq!(find(vec![wanted.clone()]).await, [None]);
    owner.commit(Batch { runs_new: vec![same_key(5, Status::Failed), same_key(3, Status::Completed), same_key(1, Status::Running)], ..Batch::default() }).await;
    assert_eq!(find(vec![wanted.clone()]).await, [Some((id(1), Status::Running))]);
    owner.commit(Batch { runs_changed: vec![change(1, closed(Status::Terminated, 3, 9000))], ..Batch::default() }).await;
    let keys = vec![of(workflow_type("refund"), Namespace::default()), wanted.clone(), of(workflow_type("order"), namespace("other")), wanted];
    let newest = Some((id(5), Status::Failed)); // by its start, which is the order of lists
    assert_eq!(find(keys).await, [None, newest, None, newest]);
}

async fn page(subject: &Subject, from: u64, max_bytes: usize) -> Vec<Bytes> {
    subject.runs.history(SHARD, id(1), EventId(from), max_bytes).await.expect("read")
}

/// From the row that holds the event, until about so many bytes.
pub async fn history_is_read_by_event_and_by_bytes(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    let rows = vec![events(1, 1, 3, b"1-3"), events(1, 4, 1, b"4.."), events(1, 5, 6, b"5-10"), events(1, 11, 1, b"11"), events(2, 1, 20, b"another run's")];
    owner.commit(Batch { history: rows, ..Batch::default() }).await;
    assert_eq!(page(subject, 1, 1000).await, ["1-3", "4..", "5-10", "11"]);
    assert_eq!(page(subject, 3, 1000).await, ["1-3", "4..", "5-10", "11"]);
    assert_eq!(page(subject, 4, 1000).await, ["4..", "5-10", "11"]);
    assert_eq!(page(subject, 10, 1000).await, ["5-10", "11"]);
    assert_eq!(page(subject, 12, 1000).await, Vec::<Bytes>::new());
    assert_eq!(page(subject, u64::MAX, 1000).await, Vec::<Bytes>::new());
    assert_eq!(page(subject, 1, 0).await, ["1-3"], "at least one row");
    assert_eq!(page(subject, 1, 3).await, ["1-3"]);
    assert_eq!(page(subject, 1, 4).await, ["1-3", "4.."]);
}

/// Control records are numbered as records but not as events.
pub async fn control_records_before_an_event_are_skipped_or_kept_whole(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    let row = |first_record, record_count, first_event, event_count, text: &'static str| HistoryRow {
        execution_id: id(1),
        first_record,
        record_count,
        first_event: EventId(first_event),
        event_count,
        records: Bytes::from_static(text.as_bytes()),
    };
    let rows = vec![row(1, 2, 1, 1, "e1"), row(3, 4, 2, 0, "control"), row(7, 3, 2, 2, "e2-3"), row(10, 1, 4, 0, "control at the end"), row(11, 5, 4, 1, "e4")];
    owner.commit(Batch { history: rows, ..Batch::default() }).await;
    let holds = |rows: &[Bytes], text: &str| rows.iter().any(|row| row == text);
    let all = page(subject, 1, 1000).await;
    assert_eq!(all.len(), 5);
    let from_three = page(subject, 3, 1000).await;
    assert!(holds(&from_three, "e2-3") && holds(&from_three, "e4") && !holds(&from_three, "e1"), "{from_three:?}");
    let from_four = page(subject, 4, 1000).await;
    assert!(holds(&from_four, "e4") && !holds(&from_four, "e2-3"), "{from_four:?}");
}

/// Queues are apart by namespace, name and kind.
pub async fn backlog_pages_by_queue_kind_and_sequence(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    let elsewhere = TaskRow { namespace: namespace("other"), ..task(workflow_task(3), 3) };
    let billing = TaskRow { queue: queue("billing"), ..task(activity_task(2, 4), 5) };
    let rows =
        vec![task(workflow_task(1), 1), task(activity_task(1, 4), 2), elsewhere.clone(), task(workflow_task(2), 4), billing.clone(), task(workflow_task(4), 9)];
    owner.commit(Batch { tasks_new: rows, ..Batch::default() }).await;
    let of = |namespace: &Namespace, name: &str, kind| BacklogQueue { namespace: namespace.clone(), queue: queue(name), kind };
    let default = Namespace::default();
    let mut queues = subject.runs.backlog_queues(SHARD).await.expect("read");
    queues.sort_by(|a, b| (&a.namespace, &a.queue, a.kind).cmp(&(&b.namespace, &b.queue, b.kind)));
    let orders = of(&default, "orders", TaskKind::Workflow);
    let other = of(&namespace("other"), "orders", TaskKind::Workflow);
    assert_eq!(queues, [of(&default, "billing", TaskKind::Activity), orders.clone(), of(&default, "orders", TaskKind::Activity), other.clone()]);
    let backlog = |queue, after, limit| {
        let runs = subject.runs.clone();
        async move { runs.backlog(SHARD, &queue, after, limit).await.expect("read") }
    };
    assert_eq!(backlog(orders.clone(), 0, 2).await, [task(workflow_task(1), 1), task(workflow_task(2), 4)]);
    assert_eq!(backlog(orders.clone(), 4, 2).await, [task(workflow_task(4), 9)]);
    assert_eq!(backlog(orders, 9, 2).await, []);
    assert_eq!(backlog(other, 0, 9).await, [elsewhere]);
    assert_eq!(backlog(of(&default, "billing", TaskKind::Activity), 0, 9).await, [billing]);
}

/// By sequence.
pub async fn outbox_pages_in_order(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    owner.commit(Batch { outbox_new: vec![message(3, 1, b"c"), message(1, 2, b"a"), message(2, 3, b"b")], ..Batch::default() }).await;
    assert_eq!(subject.runs.outbox(SHARD, 0, 2).await.expect("read"), [message(1, 2, b"a"), message(2, 3, b"b")]);
    assert_eq!(subject.runs.outbox(SHARD, 2, 2).await.expect("read"), [message(3, 1, b"c")]);
    assert_eq!(subject.runs.outbox(ShardId(1), 0, 2).await.expect("read"), []);
}

/// Several shards, one order.
pub async fn due_rows_come_earliest_first_from_the_shards_asked_for(subject: &Subject) {
    for (shard, rows) in [(0, vec![due(1, 300), due(2, 100)]), (1, vec![due(3, 200)]), (2, vec![due(4, 50)])] {
        Owner::of(&*subject.runs, shard).await.commit(Batch { due_new: rows, ..Batch::default() }).await;
    }
    let both = [ShardId(0), ShardId(1)];
    let ask = |until, limit| async move { subject.runs.due(&both, at(until), limit).await.expect("read") };
    assert_eq!(ask(1000, 10).await, [(ShardId(0), due(2, 100)), (ShardId(1), due(3, 200)), (ShardId(0), due(1, 300))]);
    assert_eq!(ask(200, 10).await, [(ShardId(0), due(2, 100)), (ShardId(1), due(3, 200))]);
    assert_eq!(ask(1000, 1).await, [(ShardId(0), due(2, 100))]);
    assert_eq!(subject.runs.due(&[], at(1000), 10).await.expect("read"), []);
}

/// The new owner goes on from the highest numbers in use.
pub async fn recovery_finds_the_highest_sequences(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    let billing = TaskRow { queue: queue("billing"), ..task(activity_task(2, 4), 500) };
    owner
        .commit(Batch {
            tasks_new: vec![task(workflow_task(1), 7), billing, task(activity_task(1, 4), 499)],
            outbox_new: vec![message(41, 1, b""), message(40, 1, b"")],
            ..Batch::default()
        })
        .await;
    let found = subject.runs.recovery(SHARD).await.expect("read");
    assert_eq!(found, Recovery { last_task_sequence: 500, last_outbox_sequence: 41 });
    assert_eq!(subject.runs.recovery(ShardId(1)).await.expect("read"), Recovery::default());
}

fn filter() -> RunFilter {
    RunFilter::all(Namespace::default())
}

async fn list(subject: &Subject, filter: RunFilter) -> Vec<ExecutionId> {
    subject.runs.list(&filter).await.expect("read").iter().map(|row| row.execution_id).collect()
}

/// The order is (started_at, execution id) descending, over shards; a page goes on after the last row of the one before.
pub async fn lists_page_newest_first_over_all_shards(subject: &Subject) {
    for shard in 0..super::SHARDS {
        // Runs 1, 5, 9.. on shard 0, 2, 6, 10.. on shard 1, all with only three different starts, so that ids decide.
        let mine = (0..6)
            .map(|step| u64::from(shard) + 1 + 4 * step)
            .map(|number| RunRow { started_at: at(i64::try_from(number % 3).expect("small")), ..run(number) });
        Owner::of(&*subject.runs, shard).await.commit(Batch { runs_new: mine.collect(), ..Batch::default() }).await;
    }
    let mut expected: Vec<_> = (1..=24u64).map(|number| (number % 3, id(number))).collect();
    expected.sort_by(|a, b| b.cmp(a));
    let expected: Vec<_> = expected.into_iter().map(|(_, id)| id).collect();
    assert_eq!(list(subject, filter()).await, expected);
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let rows = subject.runs.list(&RunFilter { limit: 7, after, ..filter() }).await.expect("read");
        let Some(last) = rows.last() else { break };
        after = Some((last.started_at, last.execution_id));
        paged.extend(rows.iter().map(|row| row.execution_id));
    }
    assert_eq!(paged, expected);
}

/// By status, type, business key and namespace, and all at once.
pub async fn lists_filter(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    let failed = |number| RunRow { mutable: closed(Status::Failed, 2, 5000), ..run(number) };
    let rows = vec![
        run(1),
        failed(2),
        RunRow { workflow_type: workflow_type("refund"), ..run(3) },
        RunRow { workflow_type: workflow_type("refund"), ..failed(4) },
        RunRow { namespace: namespace("other"), ..run(5) },
        RunRow { workflow_id: workflow_id("order-1"), ..failed(6) },
    ];
    owner.commit(Batch { runs_new: rows, ..Batch::default() }).await;
    let failed = RunFilter { status: Some(Status::Failed), ..filter() };
    let refunds = RunFilter { workflow_type: Some(workflow_type("refund")), ..filter() };
    let first = RunFilter { workflow_id: Some(workflow_id("order-1")), ..filter() };
    assert_eq!(list(subject, filter()).await, [id(6), id(4), id(3), id(2), id(1)]);
    assert_eq!(list(subject, failed.clone()).await, [id(6), id(4), id(2)]);
    assert_eq!(list(subject, refunds.clone()).await, [id(4), id(3)]);
    assert_eq!(list(subject, first.clone()).await, [id(6), id(1)]);
    assert_eq!(list(subject, RunFilter { namespace: namespace("other"), ..filter() }).await, [id(5)]);
    assert_eq!(list(subject, RunFilter { status: Some(Status::Failed), ..refunds }).await, [id(4)]);
    assert_eq!(list(subject, RunFilter { status: Some(Status::Running), ..first.clone() }).await, [id(1)]);
    assert_eq!(list(subject, RunFilter { workflow_type: Some(workflow_type("refund")), ..first.clone() }).await, []);
    assert_eq!(list(subject, RunFilter { after: Some((at(1006), id(6))), ..first.clone() }).await, [id(1)]);
    assert_eq!(list(subject, RunFilter { limit: 1, ..first }).await, [id(6)]);
}

/// Late and paused runs are found by those marks; a change of the marks shows.
pub async fn marks_filter_lists(subject: &Subject) {
    let mut owner = Owner::of(&*subject.runs, 0).await;
    let late = |mutable| RunMutable { sla_deadline_at: Some(at(2)), sla_breached_at: Some(at(3)), ..mutable };
    let paused = |mutable| RunMutable { paused_at: Some(at(4)), ..mutable };
    let rows = vec![
        RunRow { sla_ms: Some(7), ..run(1) },
        RunRow { mutable: late(open(2)), ..run(2) },
        RunRow { mutable: paused(late(open(2))), ..run(3) },
        RunRow { mutable: late(closed(Status::Completed, 2, 5000)), ..run(4) },
    ];
    owner.commit(Batch { runs_new: rows, ..Batch::default() }).await;
    let is_late = |late| RunFilter { sla_breached: Some(late), ..filter() };
    let is_paused = |paused| RunFilter { status: Some(Status::Running), paused: Some(paused), ..filter() };
    assert_eq!(list(subject, is_late(true)).await, [id(4), id(3), id(2)]);
    assert_eq!(list(subject, is_late(false)).await, [id(1)]);
    assert_eq!(list(subject, RunFilter { status: Some(Status::Completed), ..is_late(true) }).await, [id(4)]);
    assert_eq!(list(subject, is_paused(true)).await, [id(3)]);
    assert_eq!(list(subject, is_paused(false)).await, [id(2), id(1)]);
    let key = RunFilter { workflow_id: Some(run(3).workflow_id), ..is_late(true) };
    assert_eq!(list(subject, RunFilter { paused: Some(true), ..key.clone() }).await, [id(3)]);
    assert_eq!(list(subject, RunFilter { paused: Some(false), ..key }).await, []);
    let changed = change(1, paused(late(open(3))));
    owner.commit(Batch { runs_changed: vec![changed.clone()], ..Batch::default() }).await;
    assert_eq!(list(subject, is_paused(true)).await, [id(3), id(1)]);
    let stored = subject.runs.load_run(SHARD, id(1)).await.expect("read").expect("it is there");
    assert_eq!((stored.row.sla_ms, stored.row.mutable), (Some(7), changed.mutable));
}
