//! Request ids: repeating a call repeats its answer.

use crate::support::*;
use harvest_ids::EventId;
use harvest_workflow_core::decision::{Reject, Reply};
use harvest_workflow_core::input::*;

#[test]
fn a_repeated_request_changes_nothing() {
    let mut run = Run::started();
    let inputs = [
        Input::Start { started: Box::new(started("order-1")), carried: Carried::default() },
        signal("go", Some(request(1))),
        Input::RequestCancel { reason: "a".into(), request_id: Some(request(2)) },
    ];
    for input in inputs {
        run.ok(input.clone());
        let before = run.log.len();
        assert_eq!(run.ok(input).reply, Reply::Duplicate);
        assert_eq!(run.log.len(), before);
    }
}

#[test]
fn another_start_of_an_existing_run_is_refused() {
    let mut run = Run::started();
    for request_id in [None, Some(request(9))] {
        let mut again = started("order-1");
        again.request_id = request_id;
        assert_eq!(run.refused(Input::Start { started: Box::new(again), carried: Carried::default() }), Reject::AlreadyStarted);
    }
}

#[test]
fn the_key_of_a_start_and_that_of_a_signal_do_not_meet() {
    let mut run = Run::started();
    assert_eq!(run.signal("go", Some(request(0))).reply, Reply::Done);
}

#[test]
fn signals_handed_over_with_a_start_come_first_and_are_remembered() {
    let mut run = Run::new();
    let carried = Carried {
        signals: vec![CarriedSignal { name: harvest_ids::SignalName::new("go").unwrap(), payload: payload("1"), request_id: Some(request(3)) }],
        ..Carried::default()
    };
    run.ok(Input::Start { started: Box::new(started("order-1")), carried });
    assert_eq!(run.state.last_event_id(), EventId(2));
    assert_eq!(run.signal("go", Some(request(3))).reply, Reply::Duplicate);
    assert_eq!(run.projection().tasks.len(), 1);
}

#[test]
fn asking_to_cancel_again_keeps_the_first_reason_and_remembers_the_request() {
    let mut run = Run::started();
    run.ok(Input::RequestCancel { reason: "first".into(), request_id: Some(request(1)) });
    assert_eq!(run.ok(Input::RequestCancel { reason: "second".into(), request_id: Some(request(2)) }).reply, Reply::Duplicate);
    assert_eq!(run.state.cancel_requested().unwrap().reason, "first");
    run.act(vec![complete()]);
    assert_eq!(run.ok(Input::RequestCancel { reason: String::new(), request_id: Some(request(2)) }).reply, Reply::Duplicate);
}

#[test]
fn the_memory_is_bounded_and_forgets_the_oldest_first() {
    let mut run = Run::started();
    run.limits.max_request_ids = 32;
    for number in 1..=100 {
        run.signal("go", Some(request(number)));
        assert!((1..=100).filter(|seen| run.state.request_seen(&request(*seen))).count() <= 32);
    }
    assert!(run.state.request_seen(&request(100)) && !run.state.request_seen(&request(1)));
}
