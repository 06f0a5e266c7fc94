//! Workflow tasks: one at a time, pending while there is news, failures and their patience.

use crate::support::*;
use harvest_ids::*;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::input::*;
use harvest_workflow_core::machine::workflow_task::WorkflowTask;
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::record::WorkflowTaskFailure;
use harvest_workflow_core::state::Status;

fn pending(run: &Run) -> bool {
    run.projection().tasks.contains_key(&TaskKey::Workflow)
}

fn panicked() -> WorkflowTaskFailure {
    WorkflowTaskFailure::Panicked { message: "index out of bounds".into() }
}

fn broken() -> WorkflowTaskFailure {
    WorkflowTaskFailure::NonDeterminism { message: "changed".into(), expected: "TimerStarted".into(), actual: "ActivityScheduled".into(), event_id: EventId(3) }
}

#[test]
fn a_started_run_has_a_task_and_the_reply_says_what_the_worker_must_know() {
    let mut run = Run::started();
    let dispatch = run.dispatch(1);
    let reply = run.ok(Input::StartWorkflowTask { dispatch }).reply;
    assert_eq!(reply, Reply::WorkflowTask { attempt: Attempt(1), last_event: EventId(1), previous_decision: EventId(0), timeout: ms(10_000) });
    let dispatch = run.dispatch(2);
    assert_eq!(run.refused(Input::StartWorkflowTask { dispatch }), Reject::NotPending, "at most one at a time");
}

#[test]
fn news_during_a_task_makes_the_next_one_ready_right_after_it() {
    let mut run = Run::started();
    let token = run.take();
    run.signal("go", None);
    let completion = run.completion(token, vec![]);
    run.ok(Input::CompleteWorkflowTask(Box::new(completion)));
    assert!(pending(&run));
    let dispatch = run.dispatch(1);
    let reply = run.ok(Input::StartWorkflowTask { dispatch }).reply;
    assert_eq!(reply, Reply::WorkflowTask { attempt: Attempt(1), last_event: EventId(3), previous_decision: EventId(1), timeout: ms(10_000) });
}

#[test]
fn a_decision_without_news_leaves_nothing_pending() {
    let mut run = Run::started();
    run.act(vec![timer(1_000)]);
    assert!(!pending(&run));
    let dispatch = run.dispatch(1);
    assert_eq!(run.refused(Input::StartWorkflowTask { dispatch }), Reject::NotPending);
}

#[test]
fn the_events_of_commands_follow_their_decision_in_order() {
    let mut run = Run::started();
    let marker = Command::RecordMarker { name: "version:a".into(), details: None };
    let (first, decision) = run.act(vec![timer(5), schedule(1), marker, child("c", false), child("d", true)]);
    let kinds = events(&decision);
    assert!(matches!(kinds[0], EventKind::WorkflowTaskCompleted(task) if task.seen == EventId(1)));
    assert!(matches!(
        kinds[1..],
        [
            EventKind::TimerStarted { .. },
            EventKind::ActivityScheduled(_),
            EventKind::MarkerRecorded { .. },
            EventKind::ChildWorkflowStarted { .. },
            EventKind::ChildWorkflowSpawnedDetached { .. }
        ]
    ));
    assert_eq!(first, EventId(3));
}

#[test]
fn an_answer_of_another_dispatch_session_or_run_is_stale() {
    let mut run = Run::started();
    let token = run.take();
    let other = run.dispatch(1);
    let stale = [
        TaskToken { attempt: Attempt(2), ..token.clone() },
        TaskToken { dispatch: other, ..token.clone() },
        TaskToken { activity_id: Some(EventId(1)), ..token.clone() },
        TaskToken { execution_id: started("other").execution_id, ..token.clone() },
    ];
    for token in stale {
        let completion = run.completion(token, vec![complete()]);
        assert!(matches!(run.refused(Input::CompleteWorkflowTask(Box::new(completion))), Reject::StaleTask { .. }));
    }
    let completion = CompleteWorkflowTask { worker_id: worker(9), ..run.completion(token.clone(), vec![complete()]) };
    assert!(matches!(run.refused(Input::CompleteWorkflowTask(Box::new(completion))), Reject::StaleTask { .. }));
    let completion = run.completion(token, vec![]);
    run.ok(Input::CompleteWorkflowTask(Box::new(completion.clone())));
    assert!(matches!(run.refused(Input::CompleteWorkflowTask(Box::new(completion))), Reject::StaleTask { .. }), "a repeated answer");
}

#[test]
fn the_first_timeout_is_retried_at_once_and_the_next_ones_ever_more_patiently() {
    let mut run = Run::started();
    let mut delays = Vec::new();
    for _ in 0..10 {
        run.take();
        run.wake_at_due();
        if let WorkflowTask::Backoff { until, .. } = *run.state.workflow_task() {
            delays.push(until.as_millis() - run.now);
            assert!(!pending(&run), "a task in its back-off is not offered");
            run.wake_at_due();
        } else {
            delays.push(0);
        }
    }
    assert_eq!(delays[0], 0);
    for (retry, delay) in delays[1..].iter().enumerate() {
        let base = (5_000 << retry).min(300_000);
        assert!((base / 2..=base).contains(delay), "retry {retry}: {delay}");
    }
}

#[test]
fn news_does_not_shorten_a_back_off() {
    let mut run = Run::started();
    let token = run.take();
    run.ok(fail_task(&token, WorkflowTaskFailure::WorkerError { message: "no such type".into() }));
    let due = run.projection().due_at;
    run.signal("go", None);
    assert_eq!((run.projection().due_at, pending(&run)), (due, false));
    run.wake_at_due();
    assert!(pending(&run));
    assert_eq!(run.take().attempt, Attempt(2));
}

#[test]
fn the_third_panic_in_a_row_fails_the_run_and_other_failures_between_do_not_count() {
    let mut run = Run::started();
    for cause in [panicked(), panicked(), WorkflowTaskFailure::TimedOut, panicked(), panicked()] {
        let token = run.take();
        run.ok(fail_task(&token, cause));
        assert_eq!(run.state.status(), Status::Running);
        run.wake_at_due();
    }
    let token = run.take();
    run.ok(fail_task(&token, panicked()));
    assert!(matches!(run.last_event(), EventKind::WorkflowFailed { failure } if failure.error_type == "HandlerPanic" && failure.message.contains("bounds")));
}

#[test]
fn non_determinism_blocks_visibly_until_a_decision_succeeds() {
    let mut run = Run::started();
    let since = run.now;
    for count in 1..=2 {
        let token = run.take();
        run.ok(fail_task(&token, broken()));
        let block = run.projection().blocked.unwrap();
        assert_eq!((block.count, block.since.as_millis(), block.expected.as_str()), (count, since, "TimerStarted"));
        run.wake_at_due();
    }
    run.act(vec![]);
    assert_eq!(run.projection().blocked, None);
}

#[test]
fn a_malformed_decision_is_refused_whole() {
    let mut run = Run::started();
    let token = run.take();
    let refuse = |run: &mut Run, commands| {
        let completion = run.completion(token.clone(), commands);
        run.refused(Input::CompleteWorkflowTask(Box::new(completion)))
    };
    assert!(matches!(refuse(&mut run, vec![complete(), timer(1)]), Reject::BadCommand { index: 0, .. }), "the end comes last");
    assert!(matches!(refuse(&mut run, vec![complete(), complete()]), Reject::BadCommand { index: 0, .. }), "there is one end");
    let marker = Command::RecordMarker { name: String::new(), details: None };
    assert!(matches!(refuse(&mut run, vec![timer(1), marker]), Reject::BadCommand { index: 1, .. }));
    run.limits.max_commands = 1;
    assert_eq!(refuse(&mut run, vec![timer(1), timer(1)]), Reject::Limit { limit: "max_commands", found: 2, allowed: 1 });
    run.ok(fail_task(&token, WorkflowTaskFailure::WorkerError { message: "malformed".into() }));
}

#[test]
fn a_decision_takes_only_signals_that_it_was_given_and_each_once() {
    let mut run = Run::started();
    run.signal("a", None);
    let token = run.take();
    run.signal("b", None);
    for consumed in [vec![EventId(3)], vec![EventId(2), EventId(2)], vec![EventId(1)]] {
        let completion = CompleteWorkflowTask { consumed_signals: consumed, ..run.completion(token.clone(), vec![]) };
        assert!(matches!(run.refused(Input::CompleteWorkflowTask(Box::new(completion))), Reject::BadDecision { .. }));
    }
    let completion = CompleteWorkflowTask { consumed_signals: vec![EventId(2)], ..run.completion(token, vec![]) };
    run.ok(Input::CompleteWorkflowTask(Box::new(completion)));
    assert_eq!(run.state.unread_signals().map(|(id, _)| id).collect::<Vec<_>>(), [EventId(3)]);
}
