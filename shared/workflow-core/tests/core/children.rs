//! Children and their parents, through the messages between them.

use crate::support::*;
use harvest_ids::*;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::decision::{Decision, Reply};
use harvest_workflow_core::event::{EventKind, Parent};
use harvest_workflow_core::input::*;
use harvest_workflow_core::message::{ChildOutcome, Message, MessageBody};
use harvest_workflow_core::projection::TaskKey;
use harvest_workflow_core::state::Status;

/// A parent with one child, the message that starts it, and the event that asked for it.
fn family(detached: bool) -> (Run, Message, EventId) {
    let mut run = Run::started();
    let (initiated, decision) = run.act(vec![child("ship-1", detached)]);
    let [start] = &decision.messages[..] else { panic!("{:?}", decision.messages) };
    (run, start.clone(), initiated)
}

/// The child that a start message makes.
fn born(start: &Message) -> Run {
    let mut run = Run::new();
    run.random = 1_000_000; // or it would draw the same ids as its parent
    assert_eq!(run.ok(Input::Message(Box::new(start.clone()))).reply, Reply::Done);
    assert_eq!(run.execution_id(), start.target);
    run
}

fn only_message(decision: &Decision) -> &Message {
    let [message] = &decision.messages[..] else { panic!("{:?}", decision.messages) };
    message
}

#[test]
fn a_child_starts_runs_and_tells_its_parent_once() {
    let (mut parent, start, initiated) = family(false);
    let mut child = born(&start);
    assert_eq!(child.ok(Input::Message(Box::new(start.clone()))).reply, Reply::Duplicate);
    assert_eq!(child.state.started().unwrap().parent, Some(Parent { execution_id: parent.execution_id(), initiated, detached: false }));
    assert_eq!(start.target.slot(), Slot::of(&Namespace::default(), &WorkflowId::new("ship-1").unwrap()));
    let (_, decision) = child.act(vec![complete()]);
    let told = only_message(&decision).clone();
    assert_eq!(told.target, parent.execution_id());
    parent.ok(Input::Message(Box::new(told.clone())));
    assert!(matches!(parent.last_event(), EventKind::ChildWorkflowCompleted { started, .. } if *started == initiated));
    assert!(parent.projection().tasks.contains_key(&TaskKey::Workflow));
    assert_eq!(parent.ok(Input::Message(Box::new(told))).reply, Reply::Duplicate);
}

#[test]
fn however_a_child_ends_its_parent_learns_how() {
    type End = fn(&mut Run) -> Decision;
    let ends: [(End, &str); 4] = [
        (|run| run.act(vec![Command::FailWorkflow { failure: failure("NoStock") }]).1, "NoStock"),
        (|run| run.act(vec![Command::CancelWorkflow { reason: "r".into() }]).1, "ChildCancelled"),
        (|run| run.ok(Input::Terminate { reason: "r".into(), request_id: None }), "ChildTerminated"),
        (|run| run.wake_at_due(), "ChildTimedOut"),
    ];
    for (end, error_type) in ends {
        let (mut parent, mut start, _) = family(false);
        if let MessageBody::StartChild { child, .. } = &mut start.body {
            child.execution_timeout = Some(ms(5_000));
        }
        let mut child = born(&start);
        let told = only_message(&end(&mut child)).clone();
        parent.ok(Input::Message(Box::new(told)));
        assert!(matches!(parent.last_event(), EventKind::ChildWorkflowFailed { failure, .. } if failure.error_type == error_type), "{error_type}");
    }
}

#[test]
fn a_refused_start_is_a_failed_child() {
    let (mut parent, _, initiated) = family(false);
    let body = MessageBody::ChildStartRefused { initiated, failure: failure("ChildAlreadyRunning") };
    let refused = message(&parent, body);
    parent.ok(refused.clone());
    assert!(matches!(parent.last_event(), EventKind::ChildWorkflowFailed { failure, .. } if failure.error_type == "ChildAlreadyRunning"));
    assert_eq!(parent.ok(refused).reply, Reply::Duplicate);
}

#[test]
fn a_successor_of_a_child_tells_the_parent_and_its_predecessor_does_not() {
    let (mut parent, start, initiated) = family(false);
    let mut child = born(&start);
    let (_, decision) = child.act(vec![continue_as_new()]);
    assert!(decision.messages.is_empty());
    let successor = decision.successor.unwrap();
    let mut next = Run::started_with(successor.started);
    let (_, decision) = next.act(vec![complete()]);
    parent.ok(Input::Message(Box::new(only_message(&decision).clone())));
    assert!(matches!(parent.last_event(), EventKind::ChildWorkflowCompleted { started, .. } if *started == initiated));
}

#[test]
fn cancelling_a_child_follows_its_chain_and_asking_twice_is_asking_once() {
    let (mut parent, start, initiated) = family(false);
    let mut child = born(&start);
    let (_, continued) = child.act(vec![continue_as_new()]);
    parent.signal("go", None);
    let (_, decision) = parent.act(vec![Command::CancelChildWorkflow { started: initiated }, Command::CancelChildWorkflow { started: initiated }]);
    let cancel = only_message(&decision).clone();
    let forwarded = child.ok(Input::Message(Box::new(cancel)));
    let mut next = Run::started_with(continued.successor.unwrap().started);
    assert_eq!(only_message(&forwarded).target, next.execution_id());
    let cancel = Input::Message(Box::new(only_message(&forwarded).clone()));
    next.ok(cancel.clone());
    assert!(matches!(next.last_event(), EventKind::WorkflowCancelRequested { .. }));
    assert_eq!(next.ok(cancel.clone()).reply, Reply::Duplicate);
    next.act(vec![Command::CancelWorkflow { reason: "asked".into() }]);
    assert_eq!(next.ok(cancel).reply, Reply::Duplicate);
}

#[test]
fn a_parent_that_ends_asks_its_open_awaited_children_to_cancel_and_leaves_detached_ones_alone() {
    for (command, told) in [(complete(), 1), (continue_as_new(), 1)] {
        let mut run = Run::started();
        let (first, decision) = run.act(vec![child("a", false), child("b", false), child("c", true)]);
        let targets: Vec<ExecutionId> = decision.messages.iter().map(|message| message.target).collect();
        let closed = message(&run, MessageBody::ChildClosed { initiated: EventId(first.0 + 1), outcome: ChildOutcome::Completed(payload("1")) });
        run.ok(closed);
        let (_, decision) = run.act(vec![command]);
        assert_eq!(decision.messages.len(), told);
        assert!(matches!(&decision.messages[0], Message { target, body: MessageBody::CancelChild { .. }, .. } if *target == targets[0]));
    }
    let mut run = Run::started();
    run.act(vec![child("a", false)]);
    assert_eq!(run.ok(Input::Terminate { reason: String::new(), request_id: None }).messages.len(), 1);
}

#[test]
fn a_detached_child_tells_nobody_and_nobody_is_woken() {
    let (mut parent, start, initiated) = family(true);
    let mut child = born(&start);
    let (_, decision) = child.act(vec![complete()]);
    assert!(decision.messages.is_empty());
    let closed = message(&parent, MessageBody::ChildClosed { initiated, outcome: ChildOutcome::Completed(payload("1")) });
    assert_eq!(parent.ok(closed).reply, Reply::Duplicate);
    parent.signal("go", None);
    let (_, decision) = parent.act(vec![Command::CancelChildWorkflow { started: initiated }]);
    assert_eq!(only_message(&decision).target, start.target);
}

#[test]
fn messages_to_a_closed_run_are_taken_and_change_nothing() {
    let (mut parent, start, initiated) = family(false);
    parent.signal("go", None);
    parent.act(vec![complete()]);
    assert_eq!(parent.state.status(), Status::Completed);
    let bodies = [
        start.body.clone(),
        MessageBody::ChildClosed { initiated, outcome: ChildOutcome::Completed(payload("1")) },
        MessageBody::ChildStartRefused { initiated, failure: failure("X") },
        MessageBody::CancelChild { reason: String::new() },
    ];
    for body in bodies {
        let input = message(&parent, body);
        let decision = parent.ok(input);
        assert_eq!((decision.reply, decision.messages.len()), (Reply::Duplicate, 0));
    }
}
