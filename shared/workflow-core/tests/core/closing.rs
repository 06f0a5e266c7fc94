//! Ends of runs: unseen news, continue-as-new, limits, nothing afterwards.

use crate::support::*;
use harvest_ids::*;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::decision::{Decision, Reject, Reply};
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::input::*;
use harvest_workflow_core::payload::Failure;
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::retry::RetryPolicy;
use harvest_workflow_core::state::{Outcome, Status};

/// Starts a task, lets `meanwhile` happen, and answers it.
fn decide_during(run: &mut Run, meanwhile: Input, commands: Vec<Command>) -> Decision {
    let token = run.take();
    run.ok(meanwhile);
    let completion = run.completion(token, commands);
    run.ok(Input::CompleteWorkflowTask(Box::new(completion)))
}

fn cancel() -> Input {
    Input::RequestCancel { reason: "changed my mind".into(), request_id: None }
}

#[test]
fn a_run_ends_the_way_its_last_command_says() {
    let ends = [
        (complete(), Status::Completed),
        (Command::FailWorkflow { failure: failure("Declined") }, Status::Failed),
        (Command::CancelWorkflow { reason: "asked".into() }, Status::Cancelled),
        (continue_as_new(), Status::ContinuedAsNew),
    ];
    for (command, status) in ends {
        let mut run = Run::started();
        run.act(vec![timer(10), schedule(1), command]);
        let projection = run.projection();
        assert_eq!((projection.status, projection.due_at, projection.tasks.len()), (status, None, 0));
        assert_eq!(projection.closed_at, Some(Timestamp::from_millis(run.now)));
        assert_eq!(run.state.outcome().map(Outcome::status), Some(status));
    }
}

#[test]
fn a_decision_that_would_close_over_an_unseen_signal_or_cancel_request_is_sent_back() {
    for meanwhile in [signal("wait", None), cancel()] {
        for command in [complete(), Command::FailWorkflow { failure: failure("X") }, Command::CancelWorkflow { reason: String::new() }] {
            let mut run = Run::started();
            let decision = decide_during(&mut run, meanwhile.clone(), vec![timer(5), command.clone()]);
            assert_eq!((&decision.reply, events(&decision).len()), (&Reply::TryAgain, 0));
            assert!(run.projection().tasks.contains_key(&TaskKey::Workflow), "it is ready at once, with the news");
            run.act(vec![command]);
            assert!(!run.state.is_open());
        }
    }
}

#[test]
fn other_unseen_news_does_not_hold_up_the_end() {
    let mut run = Run::started();
    run.act(vec![timer(5)]);
    run.signal("go", None);
    run.now += 10;
    let decision = decide_during(&mut run, Input::Wake, vec![complete()]);
    assert_eq!(decision.reply, Reply::Done);
}

#[test]
fn after_ten_such_returns_the_run_closes_and_its_unread_signals_stay_in_the_history() {
    let mut run = Run::started();
    for _ in 0..10 {
        assert_eq!(decide_during(&mut run, signal("more", None), vec![complete()]).reply, Reply::TryAgain);
    }
    assert_eq!(decide_during(&mut run, signal("more", None), vec![complete()]).reply, Reply::Done);
    assert_eq!((run.state.status(), run.state.unread_signal_count()), (Status::Completed, 11));
}

#[test]
fn continue_as_new_is_never_sent_back_and_hands_over_everything_unread() {
    let mut start = started("order-1");
    start.execution_timeout = Some(ms(60_000));
    let mut run = Run::started_with(start);
    run.signal("taken", Some(request(1)));
    run.act_reading(vec![]);
    run.signal("unread", Some(request(2)));
    let token = run.take();
    run.signal("unseen", Some(request(3)));
    run.ok(cancel());
    let completion =
        run.completion(token, vec![Command::ContinueAsNew { input: payload("2"), workflow_type: None, task_queue: Some(TaskQueue::new("q").unwrap()) }]);
    let decision = run.ok(Input::CompleteWorkflowTask(Box::new(completion)));
    assert_eq!(decision.reply, Reply::Done);

    let mut next = follow(&run, &decision);
    let names: Vec<&str> = next.state.unread_signals().map(|(_, signal)| signal.name.as_str()).collect();
    assert_eq!(names, ["unread", "unseen"]);
    assert_eq!(next.state.cancel_requested().map(|cancel| cancel.reason.as_str()), Some("changed my mind"));
    let started = next.state.started().unwrap();
    assert_eq!((started.continued_from, started.first_execution_id), (Some(run.execution_id()), run.execution_id()));
    assert_eq!((started.execution_timeout, started.task_queue.as_str()), (Some(ms(60_000)), "q"));
    assert_eq!(run.state.continued_as(), Some(started.execution_id));
    for number in 1..=3 {
        assert_eq!(next.signal("again", Some(request(number))).reply, Reply::Duplicate, "the chain remembers request {number}");
    }
    assert!(next.state.started_by(&request(0)));
}

#[test]
fn a_cancel_request_that_was_seen_does_not_travel() {
    let mut run = Run::started();
    run.ok(cancel());
    let (_, decision) = run.act(vec![continue_as_new()]);
    assert!(follow(&run, &decision).state.cancel_requested().is_none());
}

#[test]
fn starting_a_successor_twice_is_starting_it_once() {
    let mut run = Run::started();
    let (_, decision) = run.act(vec![continue_as_new()]);
    let mut next = follow(&run, &decision);
    let successor = decision.successor.unwrap();
    let again = Input::Start { started: Box::new(successor.started), carried: successor.carried };
    assert_eq!(next.ok(again).reply, Reply::Duplicate);
}

#[test]
fn a_run_can_be_terminated_at_any_time() {
    let mut run = Run::started();
    run.act(vec![schedule(1), timer(5)]);
    run.ok(Input::Terminate { reason: "gone wrong".into(), request_id: Some(request(8)) });
    assert_eq!(run.state.outcome(), Some(&Outcome::Terminated { reason: "gone wrong".into() }));
    assert_eq!(run.ok(Input::Terminate { reason: String::new(), request_id: Some(request(8)) }).reply, Reply::Duplicate);
}

#[test]
fn a_closed_run_answers_and_changes_no_more() {
    let mut run = Run::started();
    run.signal("early", Some(request(5)));
    let (activity_id, _) = run.act(vec![schedule(1)]);
    let token = run.run_activity(activity_id);
    run.ok(Input::Terminate { reason: String::new(), request_id: None });
    let closed = Reject::Closed { status: Status::Terminated, continued_as: None };
    let dispatch = run.dispatch(1);
    let task_token = run.token(None, Attempt(1), dispatch.clone());
    let completion = run.completion(task_token, vec![]);
    let refused = [
        signal("late", None),
        signal("late", Some(request(6))),
        cancel(),
        Input::Terminate { reason: String::new(), request_id: None },
        Input::StartWorkflowTask { dispatch: dispatch.clone() },
        Input::CompleteWorkflowTask(Box::new(completion)),
        Input::StartActivity { activity_id, dispatch },
        close_activity(&token, ActivityOutcome::Completed(payload("1"))),
        Input::AnnounceActivity { token: token.clone(), worker_id: worker(2) },
        Input::Heartbeat { token, worker_id: worker(2), details: None },
    ];
    for input in refused {
        assert_eq!(run.refused(input), closed);
    }
    for input in [signal("early", Some(request(5))), Input::Wake, Input::ActivityLost { activity_id, attempt: Attempt(1) }] {
        let decision = run.ok(input);
        assert_eq!((decision.reply, decision.records.len()), (Reply::Duplicate, 0));
    }
}

#[test]
fn what_does_not_exist_is_not_found() {
    let mut run = Run::new();
    assert_eq!(run.refused(signal("x", None)), Reject::NotFound);
    assert_eq!(run.refused(cancel()), Reject::NotFound);
    assert_eq!(run.ok(Input::Wake).reply, Reply::Duplicate);
}

fn cap_failure(run: &Run) -> Option<&Failure> {
    run.state.outcome().and_then(Outcome::failure)
}

#[test]
fn a_decision_beyond_the_history_cap_fails_the_run_unless_it_ends_it() {
    let mut run = Run::started();
    run.limits.max_history_events = 4;
    run.act(vec![timer(5), timer(5)]);
    run.wake_at_due();
    run.act(vec![timer(5)]);
    assert_eq!(cap_failure(&run).map(|failure| failure.error_type.as_str()), Some("HistoryCapExceeded"));
    for command in [continue_as_new(), complete()] {
        let mut run = Run::started();
        run.limits.max_history_events = 2;
        run.act(vec![timer(5), timer(5), command]);
        assert!(cap_failure(&run).is_none() && !run.state.is_open());
    }
    let mut run = Run::started();
    run.limits.max_history_bytes = run.state.history_bytes() + 200;
    run.act(vec![Command::RecordMarker { name: "m".into(), details: Some(payload(&"9".repeat(300))) }]);
    assert_eq!(cap_failure(&run).map(|failure| failure.error_type.as_str()), Some("HistoryBytesCapExceeded"));
}

#[test]
fn a_signal_past_the_cap_makes_the_run_decide_and_so_end_and_only_then_are_signals_refused() {
    let mut run = Run::started();
    run.limits.max_history_events = 10;
    run.act(vec![timer(9_000), timer(9_000), timer(9_000), timer(9_000), timer(9_000), timer(9_000), timer(9_000), timer(9_000)]);
    assert_eq!(run.state.last_event_id(), EventId(10));
    run.signal("more", None);
    assert_eq!(run.refused(signal("more", None)), Reject::Limit { limit: "max_history_events", found: 11, allowed: 10 });
    run.act(vec![]);
    assert_eq!(cap_failure(&run).map(|failure| failure.error_type.as_str()), Some("HistoryCapExceeded"));

    let mut run = Run::started();
    run.limits.max_history_bytes = run.state.history_bytes();
    run.signal("more", None);
    assert!(matches!(run.refused(signal("more", None)), Reject::Limit { limit: "max_history_bytes", .. }));
    run.act(vec![]);
    assert_eq!(cap_failure(&run).map(|failure| failure.error_type.as_str()), Some("HistoryBytesCapExceeded"));
}

#[test]
fn signals_are_bounded_in_size_and_number() {
    let mut run = Run::started();
    run.limits.max_unread_signals = 2;
    run.signal("a", None);
    run.signal("b", None);
    assert_eq!(run.refused(signal("c", None)), Reject::Limit { limit: "max_unread_signals", found: 3, allowed: 2 });
    run.act_reading(vec![]);
    run.signal("c", None);
    run.limits.max_signal_bytes = 0;
    assert_eq!(run.refused(signal("d", None)), Reject::Limit { limit: "max_signal_bytes", found: 1, allowed: 0 });
    assert!(matches!(run.last_event(), EventKind::SignalReceived { .. }));
}

#[test]
fn an_oversized_output_fails_the_run_instead_of_coming_back_for_ever() {
    let large = |bytes: usize| payload(&"9".repeat(bytes));
    let mut schedule = activity(RetryPolicy::fixed(1, ms(1)));
    schedule.input = large(11);
    let offenders = [
        (Command::CompleteWorkflow { output: large(11) }, "the output"),
        (Command::ContinueAsNew { input: large(11), workflow_type: None, task_queue: None }, "the input of the next run"),
        (Command::RecordMarker { name: "m".into(), details: Some(large(11)) }, "marker m"),
        (Command::ScheduleActivity(Box::new(schedule)), "the input of activity charge"),
    ];
    for (command, what) in offenders {
        let mut run = Run::started();
        run.limits.max_payload_bytes = 10;
        let (_, decision) = run.act(vec![timer(5), command]);
        assert!(decision.successor.is_none() && decision.reply == Reply::Done);
        let message = format!("{what} has 11 bytes; at most 10 are allowed (max_payload_bytes)");
        let failure = Failure { non_retryable: true, ..Failure::engine("PayloadTooLarge", message) };
        assert_eq!(run.state.outcome(), Some(&Outcome::Failed { failure }));
    }
    let mut run = Run::started();
    run.limits.max_payload_bytes = 10;
    run.act(vec![Command::CompleteWorkflow { output: large(10) }]);
    assert_eq!(run.state.status(), Status::Completed);
}

#[test]
fn a_failure_with_oversized_details_keeps_its_type_and_loses_them() {
    let mut run = Run::started();
    run.limits.max_payload_bytes = 10;
    run.act(vec![Command::FailWorkflow { failure: Failure { details: Some(payload("12345678901")), ..failure("Declined") } }]);
    assert_eq!(run.state.outcome(), Some(&Outcome::Failed { failure: failure("Declined") }));
}

#[test]
fn an_oversized_output_is_sent_back_first_when_there_is_unseen_news() {
    for command in [complete(), continue_as_new()] {
        let mut run = Run::started();
        run.limits.max_payload_bytes = 0;
        assert_eq!(decide_during(&mut run, signal("wait", None), vec![command.clone()]).reply, Reply::TryAgain);
        run.act(vec![command]);
        assert_eq!(run.state.status(), Status::Failed);
    }
}
