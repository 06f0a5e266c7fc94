//! The laws: they hold after every step of every sequence of inputs. [`Run::decide`] and [`World`] check them; here are the sequences.

use crate::support::steps::{Step, step};
use crate::support::world::World;
use harvest_workflow_core::State;
use harvest_workflow_core::limits::Limits;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

fn walk(steps: &[Step], limits: Limits) -> World {
    let mut world = World::new(limits);
    for step in steps {
        world.step(step);
    }
    world.finish();
    world.check_chain();
    assert_eq!(State::from_records(&world.run.log), world.run.state, "the whole log folds to the state");
    world
}

fn small() -> Limits {
    Limits {
        max_history_events: 60,
        max_history_bytes: 6_000,
        max_open_items: 4,
        max_commands: 4,
        max_payload_bytes: 99,
        max_signal_bytes: 30,
        max_request_ids: 8,
        max_unread_signals: 5,
        max_state_bytes: 4_000,
        ..Limits::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_for_every_sequence_of_inputs(steps in prop::collection::vec(step(), 1..140)) {
        walk(&steps, Limits::default());
    }

    #[test]
    fn the_laws_hold_where_every_bound_is_near(steps in prop::collection::vec(step(), 1..140)) {
        walk(&steps, small());
    }
}

/// The sequences are worth something only if they get everywhere: every event, control record, reply and refusal occurs.
#[test]
fn the_sequences_reach_every_kind_of_record_and_answer() {
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(step(), 100..200);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut longest_chain = 0;
    for case in 0..120 {
        let steps = strategy.new_tree(&mut runner).unwrap().current();
        let world = walk(&steps, if case % 4 == 0 { small() } else { Limits::default() });
        longest_chain = longest_chain.max(world.longest_chain);
        for (what, count) in world.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    let expected = [
        "Event::WorkflowStarted",
        "Event::WorkflowTaskCompleted",
        "Event::WorkflowCompleted",
        "Event::WorkflowFailed",
        "Event::WorkflowCancelRequested",
        "Event::WorkflowCancelled",
        "Event::WorkflowTerminated",
        "Event::WorkflowExecutionTimedOut",
        "Event::WorkflowContinuedAsNew",
        "Event::ActivityScheduled",
        "Event::ActivityCompleted",
        "Event::ActivityFailed",
        "Event::ActivityTimedOut",
        "Event::ActivityCancelled",
        "Event::ActivityCancelRequested",
        "Event::LocalActivityScheduled",
        "Event::LocalActivityCompleted",
        "Event::LocalActivityFailed",
        "Event::LocalActivityExhausted",
        "Event::TimerStarted",
        "Event::TimerFired",
        "Event::TimerCancelled",
        "Event::SignalReceived",
        "Event::SideEffectRecorded",
        "Event::MarkerRecorded",
        "Event::ChildWorkflowStarted",
        "Event::ChildWorkflowSpawnedDetached",
        "Event::ChildWorkflowCompleted",
        "Event::ChildWorkflowFailed",
        "Event::ChildWorkflowCancelRequested",
        "Control::WorkflowTaskStarted",
        "Control::WorkflowTaskFailed",
        "Control::WorkflowTaskRetryDue",
        "Control::ActivityAttemptStarted",
        "Control::ActivityAttemptFailed",
        "Control::ActivityAttemptReleased",
        "Control::ActivityRetryDue",
        "Control::ActivityHeartbeat",
        "Control::RequestSeen",
        "Control::RequestsForgotten",
        "Control::WorkflowTaskExtended",
        "Control::SlaBreached",
        "Control::Paused",
        "Control::Resumed",
        "Reply::Done",
        "Reply::Duplicate",
        "Reply::TryAgain",
        "Reply::WorkflowTask",
        "Reply::ActivityTask",
        "Reply::Progress",
        "Reject::Closed",
        "Reject::StaleTask",
        "Reject::NotPending",
        "Reject::BadCommand",
        "Reject::Limit",
        "Message::StartChild",
        "Message::CancelChild",
        "Message::ChildClosed",
        "lost start",
    ];
    let missing: Vec<&str> = expected.into_iter().filter(|what| !seen.contains_key(*what)).collect();
    assert!(missing.is_empty(), "never reached: {missing:?}\nreached: {seen:#?}");
    assert!(longest_chain >= 2, "chains of at least three runs: {longest_chain}");
}
