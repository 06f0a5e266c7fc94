//! What workflow code can do, step by step. `Bench::task` replays from scratch after every task.

use super::bench::{Bench, json, registry};
use super::code::*;
use crate::{activities, workflows};
use harvest_ids::{DurationMs, Timestamp};
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::input::Input;
use std::time::Duration;

fn bench(workflow_type: &str, input: impl serde::Serialize) -> Bench {
    let all = workflows![sequence, parallel, first_of, approval, counter, stoppable, stoppable_text, dice, parent, typed_failure];
    Bench::new(registry(all, activities![double, add]), workflow_type, input)
}

#[test]
fn two_activities_in_sequence_with_the_options_of_their_attributes() {
    let mut bench = bench("sequence", 20);
    let mut run = bench.run();
    bench.task(&mut run);
    let scheduled = bench.events.iter().find_map(|event| match &event.kind {
        EventKind::ActivityScheduled(it) => Some(it.clone()),
        _ => None,
    });
    let scheduled = scheduled.unwrap();
    assert_eq!((scheduled.task_queue.as_str(), scheduled.retry.max_attempts), ("special", 2));
    assert_eq!(scheduled.start_to_close, Some(DurationMs::from_millis_const(30_000)));
    bench.complete_activity("double", 40);
    bench.task(&mut run);
    bench.complete_activity("add", 41);
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "41");
    assert!(run.is_closed());
}

#[test]
fn a_worker_without_the_run_in_memory_goes_on_from_the_history() {
    let mut bench = bench("sequence", 20);
    bench.task(&mut bench.run());
    bench.complete_activity("double", 40);
    bench.task(&mut bench.run());
    bench.complete_activity("add", 41);
    bench.task(&mut bench.run());
    assert_eq!(bench.outcome(), "41");
}

#[test]
fn activities_in_parallel_are_asked_for_in_one_decision() {
    let mut bench = bench("parallel", ());
    let mut run = bench.run();
    bench.task(&mut run);
    bench.complete_activity("add", 30);
    bench.task(&mut run);
    bench.complete_activity("double", 2);
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "32");
    assert_eq!(bench.events.iter().filter(|event| matches!(event.kind, EventKind::WorkflowTaskCompleted(_))).count(), 3);
}

#[test]
fn a_timer_that_loses_is_cancelled_and_an_activity_that_loses_can_be() {
    let mut bench = bench("first_of", ());
    let mut run = bench.run();
    bench.task(&mut run);
    bench.complete_activity("double", 2);
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "\"activity 2\"");
    assert!(bench.events.iter().any(|event| matches!(event.kind, EventKind::TimerCancelled { .. })));

    let mut bench = self::bench("first_of", ());
    let mut run = bench.run();
    bench.task(&mut run);
    bench.pass(1_000);
    bench.task(&mut run);
    bench.task(&mut run); // the end of the cancelled activity
    assert_eq!(bench.outcome(), "\"timer, then true\"");
}

#[test]
fn a_signal_in_time_wins_over_its_deadline_and_a_late_one_does_not() {
    let mut bench = bench("approval", ());
    let mut run = bench.run();
    bench.task(&mut run);
    bench.signal("approve", "yes");
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "\"yes\"");

    let mut bench = self::bench("approval", ());
    let mut run = bench.run();
    bench.task(&mut run);
    bench.pass(1_000);
    bench.signal("approve", "late");
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "null");

    let mut bench = self::bench("approval", ());
    bench.signal("approve", "early");
    bench.task(&mut bench.run());
    assert_eq!(bench.outcome(), "\"early\"");
    assert!(!bench.events.iter().any(|event| matches!(event.kind, EventKind::TimerStarted { .. })));
}

#[test]
fn signals_are_taken_in_order_and_queries_see_the_state_without_a_trace() {
    let mut bench = bench("counter", 1);
    let mut run = bench.run();
    bench.signal("add", 2);
    bench.signal("add", 3);
    bench.task(&mut run);
    let before = bench.events.len();
    assert_eq!(run.query("total", &json(())).unwrap(), json(6));
    assert_eq!(run.query("scaled", &json(2)).unwrap(), json(12));
    assert!(run.query("other", &json(())).unwrap_err().to_string().contains("scaled"));
    let mut fresh = bench.run();
    fresh.feed(bench.events.iter().cloned()).unwrap();
    fresh.replay().unwrap();
    assert_eq!(fresh.query("total", &json(())).unwrap(), json(6));
    assert_eq!(bench.events.len(), before);
    // A run that was replayed for a query can take the next task.
    bench.signal("add", 0);
    bench.task(&mut fresh);
    assert_eq!(bench.outcome(), "6");
}

#[test]
fn continuing_as_new_ends_the_run_with_its_successors_input() {
    let mut bench = bench("counter", 1);
    let mut run = bench.run();
    bench.signal("add", 100);
    bench.signal("add", 7);
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "continued 101");
    let carried = &bench.successor.as_ref().unwrap().carried;
    assert_eq!(carried.signals.len(), 1);
    assert!(run.is_closed());
}

#[test]
fn a_cancelled_run_can_clean_up_and_ends_as_cancelled() {
    let mut bench = bench("stoppable", ());
    let mut run = bench.run();
    bench.task(&mut run);
    bench.input(Input::RequestCancel { reason: "enough".to_owned(), request_id: None }).unwrap();
    bench.task(&mut run);
    bench.complete_activity("clean_up", ());
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "cancelled enough");
}

#[test]
fn code_whose_errors_are_texts_ends_as_cancelled_too() {
    let mut bench = bench("stoppable_text", ());
    let mut run = bench.run();
    bench.task(&mut run);
    bench.input(Input::RequestCancel { reason: "enough".to_owned(), request_id: None }).unwrap();
    bench.task(&mut run);
    bench.pass(1_000);
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "cancelled enough");
}

#[test]
fn values_from_outside_are_the_same_on_every_replay() {
    let mut bench = bench("dice", ());
    let mut run = bench.run();
    bench.task(&mut run);
    bench.pass(1_000);
    bench.task(&mut run);
    let seen: Vec<String> = serde_json::from_str(&bench.outcome()).unwrap();
    assert!((5..8).contains(&seen[1].parse::<u64>().unwrap()));
    let recorded = bench.events.iter().filter(|event| matches!(event.kind, EventKind::SideEffectRecorded { .. })).count();
    assert_eq!(recorded, 6);
}

#[test]
fn children_are_started_awaited_and_detached() {
    let mut bench = bench("parent", 1);
    let mut run = bench.run();
    bench.task(&mut run);
    let awaited = bench.events.iter().filter(|event| matches!(event.kind, EventKind::ChildWorkflowStarted { .. }));
    let started: Vec<_> = awaited.map(|event| event.id).collect();
    assert_eq!(started.len(), 2);
    let timeouts = bench.events.iter().filter(
        |event| matches!(&event.kind, EventKind::ChildWorkflowStarted { child } if child.execution_timeout == Some(DurationMs::from_millis_const(3_600_000))),
    );
    assert_eq!(timeouts.count(), 2);
    use harvest_workflow_core::message::{ChildOutcome, Message, MessageBody};
    use harvest_workflow_core::payload::Failure;
    let parent = bench.state.started().unwrap().execution_id;
    for (initiated, outcome) in started.into_iter().zip([ChildOutcome::Completed(json(3)), ChildOutcome::Failed(Failure::engine("ChildTerminated", "x"))]) {
        let child = bench.events.iter().find_map(|event| match &event.kind {
            EventKind::ChildWorkflowStarted { child } if event.id == initiated => Some(child.execution_id),
            _ => None,
        });
        let message = Message { source: child.unwrap(), target: parent, body: MessageBody::ChildClosed { initiated, outcome } };
        bench.input(Input::Message(Box::new(message))).unwrap();
        bench.task(&mut run);
    }
    assert_eq!(bench.outcome(), "1003");
}

#[test]
fn the_clock_of_the_code_is_the_time_of_its_events_and_tells_when_to_continue() {
    use crate::prelude::*;

    #[workflow]
    async fn clock(ctx: &WorkflowContext) -> Result<Vec<bool>, HarvestError> {
        let started = ctx.now();
        assert_eq!(ctx.info().started_at, started);
        let mut seen = vec![ctx.should_continue_as_new()];
        ctx.timer("t", Duration::from_secs(8)).await?;
        assert_eq!(ctx.now().duration_since(started).unwrap(), Duration::from_secs(8));
        assert_eq!(ctx.time_until_deadline(), Some(Duration::from_secs(2)));
        seen.push(ctx.should_continue_as_new());
        ctx.sleep_until("past", started).await?;
        Ok(seen)
    }

    let registry = registry(workflows![clock], activities![]);
    let mut bench = Bench::with_timeout(registry, "clock", (), Some(DurationMs::from_millis_const(10_000)));
    let mut run = bench.run();
    bench.task(&mut run);
    bench.pass(8_000);
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "[false,true]");
}

#[test]
fn a_typed_failure_reaches_the_workflow_and_its_own_reaches_the_history() {
    let mut bench = bench("renamed", ());
    let mut run = bench.run();
    bench.task(&mut run);
    bench.fail_activity("double", "CardDeclined");
    bench.task(&mut run);
    assert_eq!(bench.outcome(), "failed CardDeclined: details 5");
}

#[test]
fn the_workers_defaults_apply_where_neither_call_site_nor_attribute_says_anything() {
    use crate::prelude::*;
    use crate::registry::Registry;
    use std::sync::Arc;

    #[workflow]
    async fn three(ctx: &WorkflowContext) -> Result<(), HarvestError> {
        let plain = ctx.execute_activity(&add, (1, 2));
        let declared = ctx.execute_activity(&double, 1);
        let chosen = ctx.execute_activity_with_opts(&double, 1, ActivityOptions::new().retry(RetryPolicy::none()).queue("mine"));
        let raw = ctx.execute_activity_raw::<u32>("double", 1, "");
        let refused = ctx.execute_activity_with_opts(&add, (1, 2), ActivityOptions::new().start_to_close(Duration::ZERO)).await;
        assert!(matches!(refused, Err(HarvestError::InvalidArgument { field, .. }) if field == "start_to_close"));
        crate::try_join!(plain, declared, chosen, raw)?;
        Ok(())
    }

    let floor = ActivityOptions::new().retry(RetryPolicy::fixed(7, SECOND)).start_to_close(SECOND);
    let base = registry(workflows![three], activities![double, add]);
    let registry = Registry { workflows: base.workflows.clone(), activities: base.activities.clone(), activity_floor: floor, ..Registry::default() };
    let mut bench = Bench::new(Arc::new(registry), "three", ());
    bench.task(&mut bench.run());
    let scheduled = bench.events.iter().filter_map(|event| match &event.kind {
        EventKind::ActivityScheduled(it) => Some((it.task_queue.to_string(), it.retry.max_attempts, it.start_to_close.map(DurationMs::as_millis))),
        _ => None,
    });
    let expected = [("default", 7, 1_000), ("special", 2, 30_000), ("mine", 1, 30_000), ("special", 2, 30_000)];
    let expected: Vec<_> = expected.into_iter().map(|(queue, attempts, millis)| (queue.to_owned(), attempts, Some(millis))).collect();
    assert_eq!(scheduled.collect::<Vec<_>>(), expected);
}

#[test]
fn a_query_does_not_see_a_decision_that_is_not_recorded() {
    let mut bench = bench("counter", 1);
    let mut run = bench.run();
    bench.signal("add", 2);
    let (decided, token) = bench.decide_only(&mut run);
    assert!(run.replay().is_err());
    bench.complete(token, decided.unwrap());
    run.feed(bench.events[2..].iter().cloned()).unwrap();
    run.replay().unwrap();
    assert_eq!(run.query("total", &json(())).unwrap(), json(3));
}

#[test]
fn the_time_of_the_next_event_is_known_when_the_run_is_up_to_date() {
    let (mut run, events) = super::waiting_run();
    let recorded = events.last().unwrap().at;
    let heard = tokio::time::Instant::now();
    run.feed(events).unwrap();
    assert_eq!(run.next_event_at(heard), None, "nobody has said what time it is");
    let clock = |showed| crate::workflow::run::ServerClock { showed, heard };
    run.set_clock(clock(recorded.plus(DurationMs::from_millis_const(5))));
    let after = |millis| Some(recorded.plus(DurationMs::from_millis_const(millis)));
    assert_eq!(run.next_event_at(heard), after(5));
    assert_eq!(run.next_event_at(heard + Duration::from_secs(10)), after(5 + 9_995), "this clock may be fast");
    run.set_clock(clock(Timestamp::from_millis(0)));
    assert_eq!(run.next_event_at(heard), Some(recorded), "not before what has been recorded");
}
