//! Activities: attempts, retries, timeouts, cancelling, adoption.

use crate::support::*;
use harvest_ids::*;
use harvest_workflow_core::command::*;
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::event::{ActivityTimeout, EventKind};
use harvest_workflow_core::input::*;
use harvest_workflow_core::machine::activity::ActivityPhase;
use harvest_workflow_core::payload::Failure;
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::record::{Control, Dispatch};
use harvest_workflow_core::retry::{Jitter, RetryPolicy};

fn failed(error_type: &str) -> ActivityOutcome {
    ActivityOutcome::Failed { failure: failure(error_type), retry_after: None }
}

/// `attempts` tries, always `delay` apart.
fn every(attempts: u32, delay: u64) -> RetryPolicy {
    RetryPolicy { jitter: Jitter::None, ..RetryPolicy::fixed(attempts, ms(delay)) }
}

fn with_options(change: impl FnOnce(&mut ActivityOptions)) -> (Run, ActivityId) {
    let mut run = Run::started();
    let mut schedule = activity(every(2, 1_000));
    change(&mut schedule.options);
    let (id, _) = run.act(vec![Command::ScheduleActivity(Box::new(schedule))]);
    (run, id)
}

#[test]
fn an_activity_runs_and_its_result_is_an_event_that_wakes_the_run() {
    let (mut run, id) = with_options(|_| {});
    assert!(!run.projection().tasks.contains_key(&TaskKey::Workflow));
    let token = run.run_activity(id);
    run.close_activity(&token, ActivityOutcome::Completed(payload("5"))).unwrap();
    assert!(matches!(run.last_event(), EventKind::ActivityCompleted { activity_id, .. } if *activity_id == id));
    assert!(run.state.activity(id).is_none());
    assert!(run.projection().tasks.contains_key(&TaskKey::Workflow));
}

#[test]
fn a_failed_attempt_waits_for_its_back_off_and_the_last_one_fails_the_activity() {
    let (mut run, id) = with_options(|_| {});
    let token = run.run_activity(id);
    let decision = run.close_activity(&token, failed("Busy")).unwrap();
    assert!(events(&decision).is_empty(), "an attempt that is retried is no event");
    assert!(!run.projection().tasks.contains_key(&TaskKey::Activity(id)), "it is not offered during its back-off");
    assert_eq!(run.projection().due_at, Some(Timestamp::from_millis(run.now + 1_000)));
    run.wake_at_due();
    assert_eq!(run.state.activity(id).unwrap().last_failure().unwrap().error_type, "Busy");
    let token = run.run_activity(id);
    assert_eq!(token.attempt, Attempt(2));
    run.close_activity(&token, failed("Busy")).unwrap();
    assert!(matches!(run.last_event(), EventKind::ActivityFailed { attempt: Attempt(2), .. }));
}

#[test]
fn a_start_is_durable_first_only_when_there_is_one_attempt() {
    for (attempts, durable_first) in [(1, true), (3, false)] {
        let mut run = Run::started();
        let (activity_id, _) = run.act(vec![schedule(attempts)]);
        let dispatch = run.dispatch(2);
        assert_eq!(run.ok(Input::StartActivity { activity_id, dispatch }).reply, Reply::ActivityTask { attempt: Attempt(1), durable_first });
        let dispatch = run.dispatch(3);
        assert_eq!(run.refused(Input::StartActivity { activity_id, dispatch }), Reject::NotPending);
    }
}

#[test]
fn an_answer_to_a_dispatch_of_an_older_owner_is_stale_though_it_has_the_same_number() {
    let (mut run, id) = with_options(|_| {});
    // The start was lost with its owner, and the next owner, which counts from 1 again, gives the attempt to the same worker.
    let lost = run.dispatch(2);
    let again = Dispatch { epoch: Epoch(lost.epoch.0 + 1), ..lost.clone() };
    run.ok(Input::StartActivity { activity_id: id, dispatch: again.clone() });
    let (lost, again) = (run.token(Some(id), Attempt(1), lost), run.token(Some(id), Attempt(1), again));
    assert!(matches!(run.close_activity(&lost, ActivityOutcome::Completed(payload("1"))), Err(Reject::StaleTask { .. })));
    run.close_activity(&again, ActivityOutcome::Completed(payload("2"))).unwrap();
}

#[test]
fn a_failure_that_is_final_by_flag_or_type_is_not_retried_and_untyped_ones_never_match_the_list() {
    let listed = |run: &mut Run, id, outcome: ActivityOutcome| {
        let token = run.run_activity(id);
        run.close_activity(&token, outcome).unwrap();
    };
    for (error_type, flag, is_final) in [("Declined", false, true), ("Busy", true, true), ("Busy", false, false), ("Error", false, false)] {
        let (mut run, id) = with_options(|options| {
            options.retry = Some(RetryPolicy { non_retryable_errors: vec!["Declined".into(), "Error".into()], ..RetryPolicy::fixed(3, ms(5)) });
        });
        let failure = Failure { non_retryable: flag, ..failure(error_type) };
        listed(&mut run, id, ActivityOutcome::Failed { failure, retry_after: None });
        assert_eq!(matches!(run.last_event(), EventKind::ActivityFailed { .. }), is_final, "{error_type} {flag}");
    }
}

#[test]
fn a_retry_after_overrides_the_delay_up_to_15_minutes() {
    for (asked, delay) in [(77, 77), (3_600_000, 900_000)] {
        let (mut run, id) = with_options(|_| {});
        let token = run.run_activity(id);
        run.close_activity(&token, ActivityOutcome::Failed { failure: failure("Busy"), retry_after: Some(ms(asked)) }).unwrap();
        assert_eq!(run.projection().due_at, Some(Timestamp::from_millis(run.now + delay)));
    }
}

#[test]
fn only_the_last_start_to_close_or_heartbeat_timeout_is_an_event_and_heartbeat_details_survive() {
    let (mut run, id) = with_options(|options| {
        options.start_to_close = Some(ms(10_000));
        options.heartbeat_timeout = Some(ms(3_000));
    });
    let token = run.run_activity(id);
    let worker_id = token.dispatch.worker_id.clone();
    run.now += 2_000;
    run.ok(Input::Heartbeat { token, worker_id, details: Some(payload("50")) });
    assert_eq!(run.projection().due_at, Some(Timestamp::from_millis(run.now + 3_000)), "a heartbeat puts the timeout off");
    let decision = run.wake_at_due();
    assert!(matches!(controls(&decision)[..], [Control::ActivityAttemptFailed { failure, .. }] if failure.error_type == "Heartbeat"));
    run.wake_at_due();
    assert_eq!(run.state.activity(id).unwrap().heartbeat_details(), Some(&payload("50")));
    run.run_activity(id);
    for _ in 0..4 {
        run.now += 2_500;
        if run.projection().due_at.unwrap().as_millis() <= run.now {
            break;
        }
    }
    run.wake_at_due();
    assert!(matches!(run.last_event(), EventKind::ActivityTimedOut { attempt: Attempt(2), timeout: ActivityTimeout::Heartbeat, .. }));
}

#[test]
fn nobody_taking_the_first_attempt_in_time_is_final_and_later_attempts_wait_as_long_as_they_like() {
    let (mut run, _) = with_options(|options| options.schedule_to_start = Some(ms(4_000)));
    run.wake_at_due();
    assert!(matches!(run.last_event(), EventKind::ActivityTimedOut { timeout: ActivityTimeout::ScheduleToStart, .. }));
    let (mut run, id) = with_options(|options| options.schedule_to_start = Some(ms(4_000)));
    let token = run.run_activity(id);
    run.close_activity(&token, failed("Busy")).unwrap();
    run.wake_at_due();
    assert_eq!(run.projection().due_at, None);
}

fn budget(attempts: u32, delay: u64, longest: u64) -> (Run, ActivityId) {
    with_options(|options| {
        options.retry = Some(every(attempts, delay));
        options.schedule_to_close = Some(ms(longest));
    })
}

fn is_out_of_budget(run: &Run, last: u32) -> bool {
    matches!(run.last_event(), EventKind::ActivityTimedOut { attempt, timeout: ActivityTimeout::ScheduleToClose, .. } if attempt.0 == last)
}

#[test]
fn the_budget_of_all_attempts_ends_an_activity_that_waits_runs_or_backs_off() {
    let (mut run, id) = budget(9, 1_000, 5_000);
    let scheduled = run.now;
    assert_eq!(run.projection().due_at, Some(Timestamp::from_millis(scheduled + 5_000)));
    run.wake_at_due();
    assert!(is_out_of_budget(&run, 1), "nobody took it");

    let (mut run, id_running) = budget(9, 1_000, 5_000);
    run.run_activity(id_running);
    run.wake_at_due();
    assert!(is_out_of_budget(&run, 1), "it was running");

    let (mut run, _) = budget(9, 4_000, 5_000);
    let token = run.run_activity(id);
    run.close_activity(&token, failed("Busy")).unwrap();
    run.now += 9_000; // a late look finds the end of the back-off and of the activity
    run.ok(Input::Wake);
    assert!(is_out_of_budget(&run, 2), "its second attempt never began");
    assert!(run.state.activity(id).is_none());
}

#[test]
fn an_attempt_that_would_begin_after_the_budget_is_not_waited_for() {
    for (delay, retried) in [(2_999, true), (3_000, false), (8_000, false)] {
        let (mut run, id) = budget(9, delay, 5_000);
        let token = run.run_activity(id);
        run.now += 2_000;
        let decision = run.close_activity(&token, failed("Busy")).unwrap();
        assert_eq!(controls(&decision).is_empty(), !retried, "{delay}");
        assert_eq!(is_out_of_budget(&run, 1), !retried, "{delay}");
    }
    // What the attempt asks for itself counts as well, and the last attempt's failure stays a failure.
    let (mut run, id) = budget(9, 1, 5_000);
    let token = run.run_activity(id);
    run.close_activity(&token, ActivityOutcome::Failed { failure: failure("Busy"), retry_after: Some(ms(60_000)) }).unwrap();
    assert!(is_out_of_budget(&run, 1));
    let (mut run, id) = budget(1, 1, 5_000);
    let token = run.run_activity(id);
    run.close_activity(&token, failed("Busy")).unwrap();
    assert!(matches!(run.last_event(), EventKind::ActivityFailed { .. }));
}

#[test]
fn a_cancelled_activity_whose_budget_ends_is_cancelled() {
    let (mut run, id) = budget(9, 1, 5_000);
    run.run_activity(id);
    run.signal("go", None);
    run.act(vec![Command::CancelActivity { activity_id: id }]);
    run.wake_at_due();
    assert!(matches!(run.last_event(), EventKind::ActivityCancelled { .. }));
}

#[test]
fn what_the_call_site_leaves_open_comes_from_the_registered_attribute_then_from_the_floor() {
    let of = |attempts: u32, queue: Option<&str>, close: Option<u64>| ActivityOptions {
        task_queue: queue.map(|name| TaskQueue::new(name).unwrap()),
        retry: Some(every(attempts, 5)),
        start_to_close: close.map(ms),
        heartbeat_timeout: Some(ms(u64::from(attempts) * 100)),
        ..ActivityOptions::default()
    };
    let scheduled = |call: ActivityOptions, attribute: ActivityOptions, registered: Option<ActivityOptions>| {
        let mut run = Run::started();
        if let Some(registered) = registered {
            run.types.activities.insert(ActivityType::new("charge").unwrap(), registered);
        }
        let schedule = ScheduleActivity { options: call, attribute, floor: of(9, Some("floor"), Some(900)), ..activity(RetryPolicy::default()) };
        run.act(vec![Command::ScheduleActivity(Box::new(schedule))]);
        match run.last_event() {
            EventKind::ActivityScheduled(spec) => (spec.retry.max_attempts, spec.task_queue.to_string(), spec.start_to_close, spec.heartbeat_timeout),
            other => panic!("{other:?}"),
        }
    };
    let none = ActivityOptions::default;
    assert_eq!(scheduled(of(2, Some("call"), Some(20)), of(3, Some("attribute"), None), None), (2, "call".into(), Some(ms(20)), Some(ms(200))));
    assert_eq!(scheduled(none(), of(3, Some("attribute"), None), None), (3, "attribute".into(), Some(ms(900)), Some(ms(300))));
    // What is registered wins over what the caller's worker knows, as a whole.
    assert_eq!(scheduled(none(), of(3, Some("attribute"), None), Some(of(4, None, Some(40)))), (4, "default".into(), Some(ms(40)), Some(ms(400))));
    // The floor has a policy and a limit for one attempt; nothing else of it counts.
    assert_eq!(scheduled(none(), none(), None), (9, "default".into(), Some(ms(900)), None));
}

#[test]
fn decorrelated_delays_grow_from_the_one_before() {
    let (mut run, id) = with_options(|options| {
        let policy = RetryPolicy { jitter: Jitter::Decorrelated, max_interval: ms(60_000), ..RetryPolicy::fixed(30, ms(1_000)) };
        options.retry = Some(policy);
    });
    let (mut before, mut largest) = (1_000, 0);
    for _ in 0..29 {
        let token = run.run_activity(id);
        run.close_activity(&token, failed("Busy")).unwrap();
        let delay = run.projection().due_at.unwrap().as_millis() - run.now;
        assert!((1_000..=(before * 3).min(60_000)).contains(&delay), "{delay} after {before}");
        (before, largest) = (delay, largest.max(delay));
        run.wake_at_due();
    }
    assert!(largest > 3_000, "it never grew past what the first delay allows: {largest}");
}

#[test]
fn a_lost_worker_counts_as_a_failure_and_only_of_the_attempt_it_had() {
    let (mut run, id) = with_options(|_| {});
    run.run_activity(id);
    assert_eq!(run.ok(Input::ActivityLost { activity_id: id, attempt: Attempt(2) }).reply, Reply::Duplicate);
    run.ok(Input::ActivityLost { activity_id: id, attempt: Attempt(1) });
    assert_eq!(run.ok(Input::ActivityLost { activity_id: id, attempt: Attempt(1) }).reply, Reply::Duplicate);
    run.wake_at_due();
    run.run_activity(id);
    run.ok(Input::ActivityLost { activity_id: id, attempt: Attempt(2) });
    assert!(matches!(run.last_event(), EventKind::ActivityFailed { failure, .. } if failure.error_type == "WorkerLost"));
}

#[test]
fn cancelling_a_waiting_activity_ends_it_behind_the_commands_of_that_decision() {
    let (mut run, id) = with_options(|_| {});
    run.signal("go", None);
    let (_, decision) = run.act(vec![Command::CancelActivity { activity_id: id }, timer(5), Command::CancelActivity { activity_id: id }]);
    let kinds = events(&decision);
    assert!(matches!(
        kinds[..],
        [
            EventKind::WorkflowTaskCompleted(_),
            EventKind::ActivityCancelRequested { .. },
            EventKind::TimerStarted { .. },
            EventKind::ActivityCancelRequested { .. },
            EventKind::ActivityCancelled { .. }
        ]
    ));
    assert!(run.projection().tasks.contains_key(&TaskKey::Workflow), "its end is news");
}

#[test]
fn cancelling_during_the_back_off_ends_the_activity_too() {
    let (mut run, id) = with_options(|_| {});
    let token = run.run_activity(id);
    run.close_activity(&token, failed("Busy")).unwrap();
    run.signal("go", None);
    run.act(vec![Command::CancelActivity { activity_id: id }]);
    assert!(matches!(run.last_event(), EventKind::ActivityCancelled { .. }));
    assert_eq!(run.projection().due_at, None);
}

#[test]
fn a_running_activity_hears_of_the_cancel_request_and_any_end_but_success_is_cancelled() {
    let ends: [(ActivityOutcome, bool); 4] =
        [(ActivityOutcome::Cancelled, true), (failed("Busy"), true), (ActivityOutcome::Released, true), (ActivityOutcome::Completed(payload("1")), false)];
    for (outcome, cancelled) in ends {
        let (mut run, id) = with_options(|_| {});
        let token = run.run_activity(id);
        let announce = Input::AnnounceActivity { token: token.clone(), worker_id: token.dispatch.worker_id.clone() };
        assert_eq!(run.ok(announce.clone()).reply, Reply::Progress { cancel_requested: false });
        run.signal("go", None);
        run.act(vec![Command::CancelActivity { activity_id: id }]);
        assert_eq!(run.ok(announce).reply, Reply::Progress { cancel_requested: true });
        run.close_activity(&token, outcome).unwrap();
        assert_eq!(matches!(run.last_event(), EventKind::ActivityCancelled { .. }), cancelled);
    }
}

#[test]
fn ending_as_cancelled_unasked_is_a_failure() {
    let (mut run, id) = with_options(|_| {});
    let token = run.run_activity(id);
    run.close_activity(&token, ActivityOutcome::Cancelled).unwrap();
    assert_eq!(run.state.activity(id).unwrap().last_failure().unwrap().error_type, "Cancelled");
}

#[test]
fn cancelling_an_activity_that_ended_unseen_is_an_event_without_effect() {
    let (mut run, id) = with_options(|_| {});
    let activity_token = run.run_activity(id);
    run.signal("go", None);
    let token = run.take();
    run.close_activity(&activity_token, ActivityOutcome::Completed(payload("1"))).unwrap();
    let completion = run.completion(token, vec![Command::CancelActivity { activity_id: id }]);
    run.ok(Input::CompleteWorkflowTask(Box::new(completion)));
    assert!(matches!(run.last_event(), EventKind::ActivityCancelRequested { .. }));
    assert!(run.projection().tasks.contains_key(&TaskKey::Workflow), "the result is still news");
}

#[test]
fn a_released_attempt_waits_again_under_its_number_and_its_old_worker_is_out() {
    let (mut run, id) = with_options(|_| {});
    let token = run.run_activity(id);
    run.close_activity(&token, ActivityOutcome::Released).unwrap();
    let announce = Input::AnnounceActivity { token: token.clone(), worker_id: token.dispatch.worker_id.clone() };
    assert!(matches!(run.refused(announce), Reject::StaleTask { .. }));
    let again = run.run_activity(id);
    assert_eq!(again.attempt, Attempt(1));
    assert!(matches!(run.close_activity(&token, ActivityOutcome::Completed(payload("1"))), Err(Reject::StaleTask { .. })));
    run.close_activity(&again, ActivityOutcome::Completed(payload("1"))).unwrap();
}

#[test]
fn an_attempt_whose_start_was_lost_is_adopted_by_its_first_sign_of_life() {
    let (mut run, id) = with_options(|_| {});
    let dispatch = run.dispatch(2);
    let token = run.token(Some(id), Attempt(1), dispatch.clone());
    let decision = run.ok(Input::AnnounceActivity { token: token.clone(), worker_id: worker(2) });
    assert!(matches!(controls(&decision)[..], [Control::ActivityAttemptStarted { .. }]));
    assert!(matches!(run.state.activity(id).unwrap().phase(), ActivityPhase::Running { dispatch: current, .. } if *current == dispatch));
    run.close_activity(&token, ActivityOutcome::Completed(payload("1"))).unwrap();

    let (mut run, id) = with_options(|_| {});
    let dispatch = run.dispatch(2);
    let token = run.token(Some(id), Attempt(1), dispatch);
    let decision = run.close_activity(&token, ActivityOutcome::Completed(payload("1"))).unwrap();
    assert!(matches!(controls(&decision)[..], [Control::ActivityAttemptStarted { .. }]));
    assert!(matches!(run.last_event(), EventKind::ActivityCompleted { .. }));
}

#[test]
fn an_attempt_that_was_dispatched_again_is_not_adopted() {
    let (mut run, id) = with_options(|_| {});
    let lost = run.dispatch(2);
    let token = run.token(Some(id), Attempt(1), lost);
    run.run_activity(id);
    assert!(matches!(run.close_activity(&token, ActivityOutcome::Completed(payload("1"))), Err(Reject::StaleTask { .. })));
}

#[test]
fn an_answer_from_another_session_attempt_or_run_is_stale() {
    let (mut run, id) = with_options(|_| {});
    let token = run.run_activity(id);
    let outcome = || ActivityOutcome::Completed(payload("1"));
    let stale = |run: &mut Run, input| assert!(matches!(run.refused(input), Reject::StaleTask { .. }));
    stale(&mut run, Input::CloseActivity { token: token.clone(), worker_id: worker(9), outcome: outcome() });
    stale(&mut run, close_activity(&TaskToken { attempt: Attempt(2), ..token.clone() }, outcome()));
    stale(&mut run, close_activity(&TaskToken { execution_id: started("other").execution_id, ..token.clone() }, outcome()));
    stale(&mut run, close_activity(&TaskToken { activity_id: None, ..token.clone() }, outcome()));
    stale(&mut run, close_activity(&TaskToken { activity_id: Some(EventId(1)), ..token }, outcome()));
}

#[test]
fn a_heartbeat_is_written_down_only_when_somebody_can_notice() {
    let (mut run, id) = with_options(|_| {});
    let token = run.run_activity(id);
    let beat = |details| Input::Heartbeat { token: token.clone(), worker_id: token.dispatch.worker_id.clone(), details };
    assert!(run.ok(beat(None)).records.is_empty());
    assert_eq!(run.ok(beat(Some(payload("1")))).records.len(), 1);
    run.limits.max_payload_bytes = 3;
    assert_eq!(run.refused(beat(Some(payload("1234")))), Reject::Limit { limit: "max_payload_bytes", found: 4, allowed: 3 });
}

#[test]
fn an_output_that_is_too_large_fails_the_activity_for_good_instead_of_hanging() {
    let (mut run, id) = with_options(|_| {});
    let token = run.run_activity(id);
    run.limits.max_payload_bytes = 3;
    run.close_activity(&token, ActivityOutcome::Completed(payload("1234"))).unwrap();
    assert!(matches!(run.last_event(), EventKind::ActivityFailed { failure, .. } if failure.error_type == "PayloadTooLarge"));
}

#[test]
fn a_decision_schedules_nothing_beyond_the_bounds() {
    let mut run = Run::started();
    run.limits.max_open_items = 1;
    let token = run.take();
    let input = run.completion(token.clone(), vec![schedule(1), schedule(1)]);
    assert_eq!(run.refused(Input::CompleteWorkflowTask(Box::new(input))), Reject::Limit { limit: "max_open_items", found: 2, allowed: 1 });
    for policy in [RetryPolicy { max_attempts: 0, ..RetryPolicy::default() }, RetryPolicy { backoff_coefficient: f64::NAN, ..RetryPolicy::default() }] {
        let input = run.completion(token.clone(), vec![timer(1), Command::ScheduleActivity(Box::new(activity(policy)))]);
        assert!(matches!(run.refused(Input::CompleteWorkflowTask(Box::new(input))), Reject::BadCommand { index: 1, .. }));
    }
}

#[test]
fn details_of_heartbeats_that_would_make_the_run_too_large_for_memory_are_refused() {
    let (mut run, id) = with_options(|_| {});
    run.limits.max_state_bytes = run.state.memory_bytes() + 1_000;
    let token = run.run_activity(id);
    let beat =
        |bytes: usize| Input::Heartbeat { token: token.clone(), worker_id: token.dispatch.worker_id.clone(), details: Some(payload(&"7".repeat(bytes))) };
    run.ok(beat(800));
    assert!(matches!(run.decide(beat(1_900)), Err(Reject::Limit { limit: "max_state_bytes", .. })));
    run.ok(beat(700));
    run.ok(beat(800));
    run.close_activity(&token, ActivityOutcome::Completed(payload("5"))).unwrap();
    assert!(run.state.memory_bytes() < run.limits.max_state_bytes);
}
