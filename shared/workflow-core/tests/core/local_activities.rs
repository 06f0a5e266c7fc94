//! Local activities: noted with the decision in which a worker has run them.

use crate::support::*;
use harvest_ids::{ActivityType, Attempt, EventId, Timestamp};
use harvest_workflow_core::command::Command;
use harvest_workflow_core::decision::Reject;
use harvest_workflow_core::event::{ActivityTimeout, EventKind};
use harvest_workflow_core::input::Input;
use harvest_workflow_core::machine::workflow_task::WorkflowTask;

fn schedule() -> Command {
    Command::ScheduleLocalActivity { activity_type: ActivityType::new("hash").unwrap(), input: payload("1") }
}

fn complete_local(command: usize) -> Command {
    Command::CompleteLocalActivity { command, output: payload("2") }
}

fn fail_local(command: usize, attempt: u32) -> Command {
    Command::FailLocalActivity { command, attempt: Attempt(attempt), failure: failure("Local") }
}

#[test]
fn each_step_of_a_local_activity_is_an_event_of_its_decision_and_nothing_is_left_open() {
    let mut run = Run::started();
    let timeout = Some(ActivityTimeout::StartToClose);
    let exhausted = Command::ExhaustLocalActivity { command: 2, attempt: Attempt(1), timeout };
    let (first, _) = run.act(vec![schedule(), timer(5_000), schedule(), fail_local(0, 1), complete_local(0), fail_local(2, 1), exhausted]);
    let third = EventId(first.0 + 2);
    let ends: Vec<EventKind> = run.events().into_iter().skip(5).cloned().collect();
    let failed = |activity_id| EventKind::LocalActivityFailed { activity_id, attempt: Attempt(1), failure: failure("Local") };
    assert_eq!(
        ends,
        [
            failed(first),
            EventKind::LocalActivityCompleted { activity_id: first, output: payload("2") },
            failed(third),
            EventKind::LocalActivityExhausted { activity_id: third, attempt: Attempt(1), timeout },
        ]
    );
    assert_eq!((run.state.activities().count(), run.state.timers().count()), (0, 1));
    assert!(run.projection().tasks.is_empty(), "what a decision has seen itself is no news");
}

#[test]
fn the_end_of_a_local_activity_that_its_decision_did_not_schedule_is_refused() {
    let mut run = Run::started();
    let token = run.take();
    let many = [
        vec![complete_local(0)],
        vec![timer(1), complete_local(0)],
        vec![schedule(), complete_local(1)],
        vec![schedule(), complete_local(0), complete_local(0)],
        vec![schedule(), complete_local(0), fail_local(0, 1)],
        vec![schedule(), complete_local(usize::MAX)],
    ];
    for commands in many {
        let input = run.completion(token.clone(), commands.clone());
        let refused = run.refused(Input::CompleteWorkflowTask(Box::new(input)));
        assert!(matches!(refused, Reject::BadCommand { .. }), "{commands:?}: {refused:?}");
    }
    run.complete(&token, vec![schedule(), complete_local(0), complete()]);
}

#[test]
fn a_worker_that_is_still_at_its_task_keeps_it_for_longer() {
    let mut run = Run::started();
    let token = run.take();
    let beat = |run: &mut Run, token: &harvest_workflow_core::input::TaskToken| {
        run.decide(Input::Heartbeat { token: token.clone(), worker_id: token.dispatch.worker_id.clone(), details: None })
    };
    for _ in 0..3 {
        run.now += 9_000;
        beat(&mut run, &token).unwrap();
        assert_eq!(run.projection().due_at, Some(Timestamp::from_millis(run.now + 10_000)));
    }
    run.now += 10_000;
    run.ok(Input::Wake);
    assert!(matches!(run.state.workflow_task(), WorkflowTask::Ready { .. }), "then it has timed out as ever");
    assert!(matches!(beat(&mut run, &token), Err(Reject::StaleTask { .. })));
}
