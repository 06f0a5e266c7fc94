//! The oracle finds planted faults: each test takes a log that passes, plants one fault, and names what the oracle says about it.

use crate::support::*;
use harvest_ids::*;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::{Event, EventKind};
use harvest_workflow_core::input::*;
use harvest_workflow_core::oracle::{check, check_chain};
use harvest_workflow_core::record::{Control, Record};
use harvest_workflow_core::retry::RetryPolicy;

/// A log with a bit of everything, still open.
fn sample() -> Vec<Record> {
    let mut run = Run::started();
    run.signal("go", Some(request(1)));
    let retried = Command::ScheduleActivity(Box::new(activity(RetryPolicy::fixed(2, ms(100)))));
    let token = run.take();
    let activity_id = EventId(run.state.last_event_id().0 + 2);
    let completion = CompleteWorkflowTask { consumed_signals: vec![EventId(2)], ..run.completion(token, vec![retried, timer(5_000), child("c", false)]) };
    run.ok(Input::CompleteWorkflowTask(Box::new(completion)));
    let token = run.run_activity(activity_id);
    run.close_activity(&token, ActivityOutcome::Failed { failure: failure("Busy"), retry_after: None }).unwrap();
    run.wake_at_due();
    let token = run.run_activity(activity_id);
    run.close_activity(&token, ActivityOutcome::Completed(payload("1"))).unwrap();
    run.wake_at_due();
    run.act(vec![]);
    run.log
}

/// Numbers the events anew, so that a planted event is not found by its number alone.
fn renumber(log: &mut [Record]) {
    let mut next = 0;
    for record in log {
        if let Record::Event(event) = record {
            next += 1;
            event.id = EventId(next);
        }
    }
}

fn position(log: &[Record], wanted: impl Fn(&Record) -> bool) -> usize {
    log.iter().position(wanted).expect("the sample has such a record")
}

fn event_at(log: &[Record], wanted: impl Fn(&EventKind) -> bool) -> usize {
    position(log, |record| event_of(record).is_some_and(&wanted))
}

fn control_at(log: &[Record], wanted: impl Fn(&Control) -> bool) -> usize {
    position(log, |record| matches!(record, Record::Control(control) if wanted(control)))
}

fn append(log: &mut Vec<Record>, kind: EventKind) {
    let last = log.iter().rev().find_map(|record| match record {
        Record::Event(event) => Some(event.clone()),
        Record::Control(_) => None,
    });
    let last = last.expect("a log has events");
    log.push(Record::Event(Event { id: last.id.next(), at: last.at, kind }));
}

#[track_caller]
fn found(log: &[Record], rule: &str) {
    let violation = check(log).expect_err("the fault is found");
    assert!(violation.rule.contains(rule), "{violation}");
}

#[test]
fn the_sample_itself_is_right() {
    check(&sample()).unwrap();
}

#[test]
fn a_missing_or_repeated_event_breaks_the_numbering() {
    for index in 1..sample().len() {
        let mut log = sample();
        if event_of(&log[index]).is_some() && index + 1 < log.len() && log[index + 1..].iter().any(|record| event_of(record).is_some()) {
            log.remove(index);
            assert!(check(&log).is_err(), "without record {index}");
        }
        let mut log = sample();
        log.insert(index, log[index].clone());
        assert!(check(&log).is_err(), "record {index} twice");
    }
}

#[test]
fn something_after_the_end_is_found() {
    let mut log = sample();
    append(&mut log, EventKind::WorkflowTerminated { reason: String::new() });
    check(&log).unwrap();
    append(&mut log, EventKind::WorkflowTerminated { reason: String::new() });
    found(&log, "nothing follows the end");
}

#[test]
fn a_second_result_of_an_activity_is_found() {
    let mut log = sample();
    let completed = event_at(&log, |kind| matches!(kind, EventKind::ActivityCompleted { .. }));
    log.insert(completed, log[completed].clone());
    renumber(&mut log);
    found(&log, "was not running");
}

#[test]
fn a_result_of_an_attempt_that_never_started_is_found() {
    let mut log = sample();
    log.remove(control_at(&log, |control| matches!(control, Control::ActivityAttemptStarted { attempt: Attempt(2), .. })));
    found(&log, "was not running");
}

#[test]
fn an_attempt_that_starts_before_its_back_off_is_over_is_found() {
    let mut log = sample();
    log.remove(control_at(&log, |control| matches!(control, Control::ActivityRetryDue { .. })));
    found(&log, "no attempt of it waited");
}

#[test]
fn an_attempt_beyond_the_policy_is_found() {
    let mut log = sample();
    let scheduled = event_at(&log, |kind| matches!(kind, EventKind::ActivityScheduled(_)));
    if let Record::Event(Event { kind: EventKind::ActivityScheduled(spec), .. }) = &mut log[scheduled] {
        spec.retry.max_attempts = 1;
    }
    found(&log, "was its last and will be retried");
}

#[test]
fn a_timer_that_fires_early_or_twice_is_found() {
    let mut log = sample();
    let started = event_at(&log, |kind| matches!(kind, EventKind::TimerStarted { .. }));
    if let Record::Event(Event { kind: EventKind::TimerStarted { duration, .. }, .. }) = &mut log[started] {
        *duration = ms(5_001);
    }
    found(&log, "before its deadline");
    let mut log = sample();
    let fired = event_at(&log, |kind| matches!(kind, EventKind::TimerFired { .. }));
    log.insert(fired, log[fired].clone());
    renumber(&mut log);
    found(&log, "after it had ended");
}

#[test]
fn two_workflow_tasks_at_once_or_one_without_news_are_found() {
    let mut log = sample();
    let started = control_at(&log, |control| matches!(control, Control::WorkflowTaskStarted { .. }));
    let mut second = log[started].clone();
    if let Record::Control(Control::WorkflowTaskStarted { dispatch, .. }) = &mut second {
        dispatch.sequence = 99;
    }
    log.insert(started, second.clone());
    found(&log, "while another was with a worker");
    let mut log = sample();
    if let (Record::Control(Control::WorkflowTaskStarted { at, .. }), Some(Record::Event(last))) = (&mut second, log.last()) {
        *at = last.at;
    }
    log.push(second);
    found(&log, "without news");
}

#[test]
fn a_decision_that_nobody_was_asked_for_is_found() {
    let mut log = sample();
    log.remove(control_at(&log, |control| matches!(control, Control::WorkflowTaskStarted { .. })));
    found(&log, "no worker had");
}

#[test]
fn a_decision_that_claims_to_have_seen_more_is_found() {
    let mut log = sample();
    let completed = event_at(&log, |kind| matches!(kind, EventKind::WorkflowTaskCompleted(_)));
    if let Record::Event(Event { kind: EventKind::WorkflowTaskCompleted(task), .. }) = &mut log[completed] {
        task.seen = EventId(1);
    }
    found(&log, "says it had seen 1");
}

#[test]
fn a_signal_taken_twice_and_a_request_accepted_twice_are_found() {
    let mut log = sample();
    for record in &mut log {
        if let Record::Event(Event { kind: EventKind::WorkflowTaskCompleted(task), .. }) = record {
            task.consumed_signals = vec![EventId(2)];
        }
    }
    found(&log, "was taken twice");
    let mut log = sample();
    let signal = event_of(&log[1]).unwrap().clone();
    append(&mut log, signal);
    found(&log, "was accepted twice");
}

#[test]
fn a_command_outside_a_decision_is_found() {
    let mut log = sample();
    append(&mut log, EventKind::MarkerRecorded { name: "late".into(), details: None });
    check(&log).unwrap(); // directly behind a decision it is one more command
    append(&mut log, EventKind::WorkflowCancelRequested { reason: String::new() });
    append(&mut log, EventKind::MarkerRecorded { name: "late".into(), details: None });
    found(&log, "outside a decision");
}

#[test]
fn a_close_over_unseen_news_is_found() {
    let mut run = Run::started();
    let token = run.take();
    let completion = run.completion(token, vec![complete()]);
    run.ok(Input::CompleteWorkflowTask(Box::new(completion)));
    let mut log = run.log;
    let name = SignalName::new("lost").unwrap();
    log.insert(
        2,
        Record::Event(Event {
            id: EventId(2),
            at: Timestamp::from_millis(EPOCH_MS),
            kind: EventKind::SignalReceived { name, payload: payload("1"), request_id: None },
        }),
    );
    renumber(&mut log);
    found(&log, "closed the run over news");
}

#[test]
fn time_that_runs_backwards_is_found() {
    let mut log = sample();
    if let Some(Record::Event(last)) = log.last_mut() {
        last.at = Timestamp::from_millis(EPOCH_MS - 1);
    }
    found(&log, "backwards");
}

#[test]
fn a_signal_lost_between_two_runs_is_found() {
    let mut run = Run::started();
    run.signal("kept", None);
    let (_, decision) = run.act(vec![continue_as_new()]);
    let successor = decision.successor.unwrap();
    let mut next = Run::new();
    next.now = run.now;
    next.ok(Input::Start { started: Box::new(successor.started), carried: Carried::default() });
    let (number, violation) = check_chain(&[&run.log, &next.log]).unwrap_err();
    assert!(number == 1 && violation.rule.contains("handed over"), "{violation}");
}
