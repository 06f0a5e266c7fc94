//! Pausing and resuming: what stands still, what goes on, and by how much deadlines are put off.

use crate::support::*;
use harvest_ids::{EventId, Timestamp};
use harvest_workflow_core::command::Command;
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::event::{ActivityTimeout, EventKind, WorkflowTimeout};
use harvest_workflow_core::input::{ActivityOutcome, Input};
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::record::{Control, Record};
use harvest_workflow_core::retry::RetryPolicy;

fn pause(millis: u64) -> Input {
    Input::Pause { longest: Some(ms(millis)), reason: "maintenance".into(), request_id: Some(request(900)) }
}

fn resume() -> Input {
    Input::Resume { request_id: None }
}

fn at(run: &Run, span: i64) -> Timestamp {
    Timestamp::from_millis(run.now + span)
}

#[test]
fn a_paused_run_hands_out_nothing_and_goes_on_where_it_was() {
    let mut run = Run::started();
    assert!(run.projection().tasks.contains_key(&TaskKey::Workflow));
    run.ok(pause(60_000));
    assert!(run.projection().tasks.is_empty());
    let dispatch = run.dispatch(1);
    assert_eq!(run.decide(Input::StartWorkflowTask { dispatch }), Err(Reject::NotPending));
    run.ok(signal("go", None));
    assert!(run.projection().tasks.is_empty(), "a signal waits too");
    assert_eq!(run.ok(resume()).reply, Reply::Done);
    assert!(run.projection().tasks.contains_key(&TaskKey::Workflow));
    assert_eq!(run.state.unread_signal_count(), 1);
}

#[test]
fn pausing_twice_is_pausing_once_and_resuming_what_runs_changes_nothing() {
    let mut run = Run::started();
    assert_eq!(run.ok(resume()).reply, Reply::Duplicate);
    run.ok(pause(60_000));
    let until = run.projection().due_at;
    run.now += 1_000;
    let again = Input::Pause { longest: Some(ms(90_000)), reason: "another".into(), request_id: None };
    assert_eq!(run.ok(again).reply, Reply::Duplicate);
    assert_eq!(run.projection().due_at, until, "the first pause keeps its end");
    let too_long = Input::Pause { longest: Some(ms(25 * 3_600_000)), reason: String::new(), request_id: None };
    assert!(matches!(run.decide(too_long), Err(Reject::Limit { limit: "max_workflow_pause", .. })));
}

#[test]
fn a_pause_ends_by_itself() {
    let mut run = Run::started();
    run.ok(Input::Pause { longest: None, reason: String::new(), request_id: None });
    assert_eq!(run.projection().due_at, Some(at(&run, 24 * 3_600_000)));
    run.now += 24 * 3_600_000;
    run.ok(Input::Wake);
    assert!(run.state.pause().is_none());
    assert!(run.projection().tasks.contains_key(&TaskKey::Workflow));
}

#[test]
fn what_a_worker_has_in_its_hands_goes_on() {
    let mut run = Run::started();
    let token = run.take();
    run.ok(pause(60_000));
    assert_eq!(run.projection().tasks.len(), 1, "the task is with a worker");
    run.complete(&token, vec![Command::ScheduleActivity(Box::new(activity(RetryPolicy::fixed(3, ms(100)))))]);
    assert!(run.projection().tasks.is_empty(), "the activity waits for the end of the pause");
    run.ok(resume());
    let activity = run.run_activity(EventId(3));
    run.ok(pause(60_000));
    run.ok(close_activity(&activity, ActivityOutcome::Completed(payload("1"))));
    assert!(matches!(run.last_event(), EventKind::ActivityCompleted { .. }));
}

#[test]
fn a_decision_may_end_a_paused_run_and_a_successor_is_paused_as_it_was() {
    let mut run = Run::started();
    let token = run.take();
    run.ok(pause(60_000));
    let until = run.state.pause().unwrap().until;
    run.now += 1_000;
    let decision = run.complete(&token, vec![continue_as_new()]);
    let successor = decision.successor.unwrap();
    let mut next = Run::new();
    next.now = run.now;
    next.ok(Input::Start { started: Box::new(successor.started), carried: successor.carried });
    assert_eq!(next.state.pause().map(|pause| pause.until), Some(until));
    assert!(next.projection().tasks.is_empty());
}

#[test]
fn the_execution_timeout_is_put_off_by_the_pause_once() {
    let mut start = started("order-1");
    start.execution_timeout = Some(ms(10_000));
    let mut run = Run::started_with(start);
    let deadline = at(&run, 10_000);
    run.now += 4_000;
    run.ok(pause(60_000));
    run.now += 30_000;
    run.ok(resume());
    assert_eq!(run.state.execution_deadline(), Some(deadline.plus(ms(30_000))));
    run.now += 1_000;
    run.ok(pause(60_000));
    run.now += 5_000;
    run.ok(resume());
    assert_eq!(run.state.execution_deadline(), Some(deadline.plus(ms(35_000))), "each pause counts once");
    run.now = deadline.as_millis() + 35_000;
    run.ok(Input::Wake);
    assert!(matches!(run.last_event(), EventKind::WorkflowExecutionTimedOut { timeout: WorkflowTimeout::Execution }));
}

#[test]
fn reference_09_a_chain_whose_time_passed_in_a_pause_ends_when_it_goes_on() {
    let mut start = started("order-1");
    start.chain_execution_timeout = Some(ms(10_000));
    let mut run = Run::started_with(start);
    run.ok(pause(60_000));
    run.now += 20_000;
    assert_eq!(run.ok(Input::Wake).reply, Reply::Duplicate, "nothing happens while it is paused");
    run.ok(resume());
    assert!(matches!(run.last_event(), EventKind::WorkflowExecutionTimedOut { timeout: WorkflowTimeout::Chain }));
}

#[test]
fn timers_and_back_offs_that_fell_due_in_a_pause_end_with_it_in_their_order() {
    let mut run = Run::started();
    let token = run.take();
    let timers = |millis| Command::StartTimer { timer_id: harvest_ids::TimerName::new(format!("t{millis}")).unwrap(), duration: ms(millis) };
    run.complete(&token, vec![timers(5_000), timers(2_000), timers(900_000)]);
    run.ok(pause(60_000));
    run.now += 20_000;
    assert_eq!(run.ok(Input::Wake).reply, Reply::Duplicate);
    run.ok(resume());
    let fired: Vec<String> = run
        .events()
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::TimerFired { timer_id, .. } => Some(timer_id.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(fired, ["t2000", "t5000"]);
}

#[test]
fn an_activitys_wait_and_budget_stand_still_and_its_running_attempt_does_not() {
    let mut run = Run::started();
    let token = run.take();
    let mut waiting = activity(RetryPolicy::fixed(3, ms(100)));
    waiting.options.schedule_to_start = Some(ms(1_000));
    waiting.options.schedule_to_close = Some(ms(8_000));
    waiting.options.start_to_close = Some(ms(3_000));
    run.complete(&token, vec![Command::ScheduleActivity(Box::new(waiting))]);
    let scheduled = at(&run, 0);
    run.now += 500;
    run.ok(pause(60_000));
    run.now += 10_000;
    run.ok(resume());
    assert_eq!(run.projection().due_at, Some(scheduled.plus(ms(11_000))), "half a second of the wait is left");
    let attempt = run.run_activity(EventId(3));
    run.ok(pause(60_000));
    assert_eq!(run.projection().due_at, Some(at(&run, 3_000)), "the attempt runs, and may take no longer than ever");
    run.now += 3_000;
    run.ok(Input::Wake);
    assert!(matches!(run.log.last(), Some(Record::Control(Control::ActivityAttemptFailed { .. }))), "{:?}", run.log.last());
    let late = run.close_activity(&attempt, ActivityOutcome::Completed(payload("1")));
    assert_eq!(late, Err(Reject::StaleTask { reason: "another attempt is current" }));
    run.now += 20_000;
    run.ok(resume());
    // 0.5 s of the budget went before the first pause and nothing after it: 7.5 s are left.
    run.now += 7_499;
    run.ok(Input::Wake);
    assert!(!matches!(run.last_event(), EventKind::ActivityTimedOut { .. }));
    run.now += 1;
    run.ok(Input::Wake);
    assert!(matches!(run.last_event(), EventKind::ActivityTimedOut { timeout: ActivityTimeout::ScheduleToClose, .. }), "{:?}", run.last_event());
}

#[test]
fn a_paused_run_can_be_terminated_and_remembers_who_paused_it() {
    let mut run = Run::started();
    run.ok(pause(60_000));
    run.ok(Input::Terminate { reason: "enough".into(), request_id: None });
    assert!(!run.state.is_open() && run.state.pause().is_none());
    assert_eq!(run.ok(pause(60_000)).reply, Reply::Duplicate, "the same request again");
    assert!(matches!(run.decide(resume()), Err(Reject::Closed { .. })));
    assert_eq!(Run::new().decide(resume()), Err(Reject::NotFound));
}
