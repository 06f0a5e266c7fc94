//! Timers: firing order, cancel against fire, clocks.

use crate::support::*;
use harvest_ids::*;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::event::{EventKind, Parent, WorkflowTimeout};
use harvest_workflow_core::input::Input;
use harvest_workflow_core::state::Status;

fn fired(decision: &harvest_workflow_core::decision::Decision) -> Vec<EventId> {
    let started = |kind: &&EventKind| match kind {
        EventKind::TimerFired { started, .. } => Some(*started),
        _ => None,
    };
    events(decision).iter().filter_map(started).collect()
}

#[test]
fn due_timers_fire_in_order_of_their_deadlines_then_of_their_events() {
    let mut run = Run::started();
    let (first, _) = run.act(vec![timer(300), timer(100), timer(200), timer(100), timer(9_999)]);
    run.now += 300;
    let id = |offset| EventId(first.0 + offset);
    assert_eq!(fired(&run.ok(Input::Wake)), [id(1), id(3), id(2), id(0)]);
    assert_eq!(run.ok(Input::Wake).reply, Reply::Duplicate, "a repeated wake finds nothing");
    assert_eq!(run.projection().due_at, Some(Timestamp::from_millis(EPOCH_MS + 9_999)));
}

#[test]
fn a_wake_before_the_deadline_changes_nothing() {
    let mut run = Run::started();
    run.act(vec![timer(100)]);
    run.now += 99;
    let decision = run.ok(Input::Wake);
    assert_eq!((decision.reply, decision.records.len()), (Reply::Duplicate, 0));
}

#[test]
fn a_cancelled_timer_does_not_fire_and_a_fired_one_stays_fired() {
    let mut run = Run::started();
    let (started, _) = run.act(vec![timer(100)]);
    run.signal("go", None);
    run.act(vec![Command::CancelTimer { started }]);
    assert_eq!(run.projection().due_at, None);

    let mut run = Run::started();
    let (started, _) = run.act(vec![timer(100)]);
    run.signal("go", None);
    let token = run.take();
    run.wake_at_due();
    let completion = run.completion(token, vec![Command::CancelTimer { started }]);
    run.ok(Input::CompleteWorkflowTask(Box::new(completion)));
    assert!(
        matches!(run.last_event(), EventKind::TimerCancelled { timer_id, .. } if timer_id.as_str() == "wait"),
        "one event per command, also when it is late"
    );
    assert!(run.projection().tasks.contains_key(&harvest_workflow_core::projection::TaskKey::Workflow), "that it fired is still news");
}

#[test]
fn a_timer_of_the_same_decision_can_be_cancelled_by_its_coming_event() {
    let mut run = Run::started();
    let token = run.take();
    let started = EventId(run.state.last_event_id().0 + 2);
    let completion = run.completion(token, vec![timer(50), Command::CancelTimer { started }]);
    run.ok(Input::CompleteWorkflowTask(Box::new(completion)));
    assert_eq!(run.projection().due_at, None);
}

#[test]
fn what_never_existed_cannot_be_cancelled() {
    let mut run = Run::started();
    let token = run.take();
    let commands = [
        Command::CancelTimer { started: EventId(1) },
        Command::CancelTimer { started: EventId(99) },
        Command::CancelTimer { started: EventId(0) },
        Command::CancelActivity { activity_id: EventId(u64::MAX) },
        Command::CancelChildWorkflow { started: EventId(2) },
    ];
    for command in commands {
        let completion = run.completion(token.clone(), vec![timer(5), command]);
        assert!(matches!(run.refused(Input::CompleteWorkflowTask(Box::new(completion))), Reject::BadCommand { index: 1, .. }));
    }
}

#[test]
fn a_clock_that_goes_backwards_changes_only_the_times_written_down() {
    let mut run = Run::started();
    run.now += 10_000;
    let (_, decision) = run.act(vec![timer(100)]);
    let at = match decision.records.last() {
        Some(harvest_workflow_core::record::Record::Event(event)) => event.at,
        other => panic!("{other:?}"),
    };
    run.now -= 5_000;
    run.signal("late", None);
    assert_eq!(run.state.last_record_at(), at, "the newest record's time stands in for an earlier clock");
    run.act(vec![timer(100)]);
    assert_eq!(run.projection().due_at, Some(at.plus(ms(100))));
}

#[test]
fn the_longest_timer_at_the_end_of_time_neither_wraps_nor_fires() {
    let mut run = Run::started();
    run.now = i64::MAX - 5;
    run.act(vec![timer(DurationMs::MAX.as_millis())]);
    assert_eq!(run.projection().due_at, Some(Timestamp::from_millis(i64::MAX)));
    assert_eq!(run.ok(Input::Wake).reply, Reply::Duplicate);
}

#[test]
fn a_run_ends_at_its_execution_timeout_after_what_was_due_before_it() {
    let mut start = started("order-1");
    start.execution_timeout = Some(ms(1_000));
    let mut run = Run::started_with(start);
    run.act(vec![timer(900), timer(1_001)]);
    run.now += 60_000;
    let decision = run.ok(Input::Wake);
    assert!(matches!(events(&decision)[..], [EventKind::TimerFired { .. }, EventKind::WorkflowExecutionTimedOut { timeout: WorkflowTimeout::Execution }]));
    assert_eq!(run.state.status(), Status::TimedOut);
    assert_eq!((run.projection().due_at, run.projection().tasks.len()), (None, 0));
}

#[test]
fn the_deadline_of_a_chain_is_counted_from_its_first_run_and_handed_on_unchanged() {
    let mut start = started("order-1");
    start.chain_execution_timeout = Some(ms(5_000));
    start.execution_timeout = Some(ms(4_000));
    let mut run = Run::started_with(start);
    let began = run.now;
    let deadline = Timestamp::from_millis(began + 5_000);
    for _ in 0..3 {
        run.now += 1_000;
        let token = run.take();
        let completion = run.completion(token, vec![Command::ContinueAsNew { input: payload("2"), workflow_type: None, task_queue: None }]);
        let decision = run.ok(Input::CompleteWorkflowTask(Box::new(completion)));
        run = follow(&run, &decision);
        let started = run.state.started().unwrap();
        assert_eq!((started.chain_execution_timeout, started.chain_deadline), (Some(ms(5_000)), Some(deadline)));
    }
    assert_eq!(run.projection().due_at, Some(deadline), "the run's own limit was counted anew");
    let decision = run.wake_at_due();
    assert!(matches!(events(&decision)[..], [EventKind::WorkflowExecutionTimedOut { timeout: WorkflowTimeout::Chain }]));
    assert_eq!((run.state.status(), run.now), (Status::TimedOut, began + 5_000));
}

#[test]
fn the_ceiling_of_chains_is_their_default_but_a_child_is_none() {
    for (asked, ceiling, effective) in [
        (Some(ms(10_000)), Some(ms(500)), Some(ms(500))),
        (Some(ms(100)), Some(ms(500)), Some(ms(100))),
        (None, Some(ms(500)), Some(ms(500))),
        (Some(ms(100)), None, Some(ms(100))),
        (None, None, None),
    ] {
        let mut run = Run::new();
        run.limits.max_workflow_chain_timeout = ceiling;
        let mut start = started("order-1");
        start.chain_execution_timeout = asked;
        run.ok(Input::Start { started: Box::new(start.clone()), carried: Default::default() });
        let of = |run: &Run| run.state.started().map(|started| (started.chain_execution_timeout, started.chain_deadline)).unwrap();
        let deadline = effective.map(|span| Timestamp::from_millis(run.now).plus(span));
        assert_eq!(of(&run), (effective, deadline));

        let mut child = Run::new();
        child.limits.max_workflow_chain_timeout = ceiling;
        start.chain_execution_timeout = None;
        start.parent = Some(Parent { execution_id: start.execution_id, initiated: EventId(3), detached: false });
        child.ok(Input::Start { started: Box::new(start), carried: Default::default() });
        assert_eq!(of(&child), (None, None));
    }
}

#[test]
fn a_specified_execution_timeout_is_clamped_and_an_absent_one_stays_absent() {
    for (asked, effective) in [(Some(ms(10_000)), Some(ms(500))), (Some(ms(100)), Some(ms(100))), (None, None)] {
        let mut run = Run::new();
        run.limits.max_workflow_execution_timeout = Some(ms(500));
        let mut start = started("order-1");
        start.execution_timeout = asked;
        run.ok(Input::Start { started: Box::new(start), carried: Default::default() });
        assert_eq!(run.state.started().unwrap().execution_timeout, effective);
        assert_eq!(run.state.started().unwrap().config_version, (1, 2));
    }
}
