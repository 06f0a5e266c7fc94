//! Bounds in bytes: what floods is refused, what is large is dropped from memory, and the others go on.

use super::faulty::Pace;
use super::stage::{Owner, Stage, finish, input, key, start_operation, started};
use crate::shard::actor::Tuning;
use crate::shard::memory::Memory;
use crate::shard::neighbours::OfferKind;
use crate::shard::operation::{Answer, Operation, Refusal, StartOperation, Target};
use futures::future::join_all;
use harvest_ids::{DurationMs, ExecutionId, QueryName, RequestId, SignalName};
use harvest_runtime::Clock;
use harvest_workflow_core::input::Input;
use harvest_workflow_core::payload::Payload;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const KIB: usize = 1024;

fn large_signal(id: ExecutionId, request: &str, bytes: usize) -> Operation {
    let text = format!("\"{}\"", "x".repeat(bytes));
    input(id, Input::Signal { name: SignalName::new("go").unwrap(), payload: Payload::json(text), request_id: Some(RequestId::new(request).unwrap()) })
}

/// Round trips to the store take some milliseconds from now on, so that something can pile up meanwhile.
fn slow(stage: &Stage, owner: &Owner) {
    let clock = stage.clock.clone();
    owner.faults.set_pace(Pace(Box::new(move || {
        let clock = clock.clone();
        Box::pin(async move { clock.sleep(Duration::from_millis(5)).await })
    })));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_flooded_with_large_signals_is_refused_more_and_the_others_go_on() {
    let stage = Stage::new(1).await;
    let (bound, inbox) = (8 * 1024 * KIB, 2 * 1024 * KIB);
    let memory = Memory::new(u64::try_from(bound).unwrap());
    let tuning = Tuning { inbox_bytes: u64::try_from(inbox).unwrap(), ..Tuning::default() };
    let owner = stage.open_within(0, tuning, stage.clock.clone(), memory.clone()).await;
    slow(&stage, &owner);
    let flooded = owner.start("flooded").await;
    stage.workflow_task(&owner, "w").await;
    let (stop, taken, refused, most) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let flood = join_all((0..24).map(|sender| {
        let (owner, stage, stop, taken, refused, most) = (&owner, &stage, &stop, &taken, &refused, &most);
        async move {
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                match owner.handle.call(large_signal(flooded, &format!("{sender}-{number}"), 100 * KIB)).await {
                    Ok(_) => _ = taken.fetch_add(1, Ordering::Relaxed),
                    Err(Refusal::Overloaded { limit }) => {
                        assert_eq!(limit, "shard.inbox_share");
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    // The run's history is full: it was flooded as far as it goes.
                    Err(Refusal::Reject(_)) => {}
                    other => panic!("{other:?}"),
                }
                most.fetch_max(usize::try_from(owner.handle.inbox.held().1).unwrap(), Ordering::Relaxed);
                stage.clock.sleep(Duration::from_millis(3)).await;
            }
        }
    }));
    let others = async {
        for number in 0..15 {
            let run = owner.start(&format!("other-{number}")).await;
            assert!(owner.call(large_signal(run, "one", 10 * KIB)).await.is_ok(), "who does not flood is never refused");
            let task = stage.workflow_task(&owner, "w").await;
            assert!(owner.complete(&task, vec![finish()]).await.is_ok());
        }
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(flood, others);
    let (taken, refused) = (taken.into_inner(), refused.into_inner());
    assert!(taken >= 15 && refused > taken, "{taken} taken, {refused} refused");
    assert!(most.into_inner() <= inbox, "the inbox stays within its bytes");
    stage.clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(owner.handle.inbox.held(), (0, 0), "every place was given back");
    assert!(memory.used() <= u64::try_from(bound).unwrap(), "{} bytes of runs", memory.used());
    assert_eq!(stage.records(0, flooded).await.len(), 2 + taken, "each signal that was taken is there, and no other");
}

#[tokio::test(start_paused = true)]
async fn runs_that_are_too_large_together_leave_memory_and_all_of_them_go_on() {
    let stage = Stage::new(1).await;
    let memory = Memory::new(500_000);
    let owner = stage.open_within(0, Tuning::default(), stage.clock.clone(), memory.clone()).await;
    let mut runs = Vec::new();
    for number in 0..20 {
        let run = owner.start(&format!("run-{number}")).await;
        assert!(owner.call(large_signal(run, "one", 50 * KIB)).await.is_ok());
        runs.push(run);
        stage.rest().await;
        assert!(memory.used() <= 500_000, "{} bytes after run {number}", memory.used());
    }
    for run in runs {
        assert!(owner.call(large_signal(run, "one", 50 * KIB)).await.is_ok(), "a repetition that finds its run again");
        assert_eq!(owner.describe(run).await.last_event.0, 2);
    }
    assert!(owner.faults.loads() >= 20, "they had left");
    assert!(memory.used() <= 500_000);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_alone_is_larger_than_all_memory_goes_on() {
    let stage = Stage::new(1).await;
    let memory = Memory::new(300_000);
    let owner = stage.open_within(0, Tuning::default(), stage.clock.clone(), memory.clone()).await;
    let run = owner.start("huge").await;
    for number in 0..20 {
        assert!(owner.call(large_signal(run, &format!("s-{number}"), 50 * KIB)).await.is_ok());
    }
    let small = owner.start("small").await;
    for _ in 0..2 {
        let task = stage.workflow_task(&owner, "w").await;
        assert!(owner.complete(&task, vec![finish()]).await.is_ok());
    }
    assert_eq!(stage.events(0, run).await.len(), 23);
    assert_eq!(stage.events(0, small).await.len(), 3);
    stage.rest().await;
    assert!(memory.used() <= 300_000, "{}", memory.used());
}

#[tokio::test(start_paused = true)]
async fn large_runs_that_are_asked_for_at_once_come_into_memory_a_few_at_a_time() {
    let stage = Stage::new(1).await;
    let mut old = stage.open(0).await;
    let starts = join_all((0..200).map(|number| {
        let input = Payload::json(format!("\"{}\"", "x".repeat(20 * KIB)));
        old.call(Operation::Start(Box::new(StartOperation { input, ..start_operation(&format!("run-{number}")) })))
    }));
    let runs: Vec<ExecutionId> = starts.await.into_iter().map(started).collect();
    old.stop().await;
    let memory = Memory::new(400_000);
    let owner = stage.open_within(0, Tuning::default(), stage.clock.clone(), memory.clone()).await;
    slow(&stage, &owner);
    let most = AtomicUsize::new(0);
    let asked = join_all(runs.iter().map(|run| async {
        let view = owner.describe(*run).await;
        most.fetch_max(usize::try_from(memory.used()).unwrap(), Ordering::Relaxed);
        view
    }));
    assert!(asked.await.iter().all(|view| view.last_event.0 == 1));
    // Those that were being read when memory was full come on top.
    assert!(most.into_inner() <= 400_000 + 33 * 25_000);
}

fn wait_for(run: ExecutionId) -> Operation {
    Operation::AwaitClose(Target::Execution(run))
}

#[tokio::test(start_paused = true)]
async fn waits_for_one_run_leave_room_for_waits_for_others() {
    let stage = Stage::new(1).await;
    let owner = stage.open_with(0, Tuning { waiting_results: 10, ..Tuning::default() }, stage.clock.clone()).await;
    let (popular, other) = (owner.start("popular").await, owner.start("other").await);
    let mut waiting = Vec::new();
    for number in 0..6 {
        let mut answer = owner.handle.submit(wait_for(popular)).unwrap();
        stage.rest().await;
        match answer.try_recv() {
            Ok(refused) => assert_eq!((number, refused), (5, Err(Refusal::Overloaded { limit: "shard.waiting_results_share" }))),
            Err(_) => waiting.push(answer),
        }
    }
    let mut of_other = owner.handle.submit(wait_for(other)).unwrap();
    stage.rest().await;
    assert!(of_other.try_recv().is_err(), "it waits");
    assert_eq!(owner.handle.inbox.held(), (0, 0), "waits hold no place of the inbox");
    waiting.truncate(1);
    stage.clock.sleep(Duration::from_secs(2)).await;
    waiting.push(owner.handle.submit(wait_for(popular)).unwrap());
    for _ in 0..2 {
        let task = stage.workflow_task(&owner, "w").await;
        assert!(owner.complete(&task, vec![finish()]).await.is_ok());
    }
    for answer in waiting.into_iter().chain([of_other]) {
        assert!(matches!(stage.soon(answer).await.unwrap(), Ok(Answer::Closed(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn queries_that_wait_are_bounded_by_the_bytes_of_their_arguments() {
    let stage = Stage::new(1).await;
    let owner = stage.open_with(0, Tuning { waiting_query_bytes: 100_000, ..Tuning::default() }, stage.clock.clone()).await;
    let run = owner.start("a").await;
    let ask = |bytes: usize| Operation::Query {
        target: Target::Key(key("a")),
        name: QueryName::new("total").unwrap(),
        args: Payload::json(format!("\"{}\"", "x".repeat(bytes))),
        timeout: DurationMs::from_millis_const(5_000),
    };
    let first = owner.handle.submit(ask(40_000)).unwrap();
    assert_eq!(owner.call(ask(40_000)).await, Err(Refusal::Overloaded { limit: "shard.waiting_queries_share" }));
    assert_eq!(owner.call(ask(90_000)).await, Err(Refusal::Overloaded { limit: "shard.waiting_query_bytes" }));
    let second = owner.handle.submit(ask(5_000)).unwrap();
    for asked in [first, second] {
        assert_eq!(stage.soon(asked).await.unwrap(), Err(Refusal::QueryTimeout));
    }
    let third = owner.handle.submit(ask(90_000)).unwrap();
    stage.workflow_task(&owner, "w").await;
    assert_eq!(stage.soon(third).await.unwrap(), Err(Refusal::QueryTimeout));
    assert_eq!(owner.describe(run).await.last_event.0, 1);
    assert!(stage.fleet.take_offers().iter().all(|offer| offer.kind != OfferKind::Query));
}
