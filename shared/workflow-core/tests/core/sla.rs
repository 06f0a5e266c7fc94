//! The soft limit: noted once, and nothing else happens.

use crate::support::*;
use harvest_workflow_core::decision::Reply;
use harvest_workflow_core::defaults::WorkflowOptions;
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::input::{Carried, Input};
use harvest_workflow_core::record::{Control, Record};

fn late(sla: u64, timeout: Option<u64>) -> Run {
    let mut start = started("order-1");
    start.sla = Some(ms(sla));
    start.execution_timeout = timeout.map(ms);
    Run::started_with(start)
}

fn breaches(run: &Run) -> Vec<i64> {
    run.log
        .iter()
        .filter_map(|record| match record {
            Record::Control(Control::SlaBreached { at }) => Some(at.as_millis()),
            _ => None,
        })
        .collect()
}

#[test]
fn reference_06_a_run_that_passes_its_sla_is_noted_once_and_completes_as_ever() {
    let mut run = late(2_000, None);
    let began = run.now;
    run.now += 2_500;
    let events = run.events().len();
    assert_eq!(run.ok(Input::Wake).reply, Reply::Done);
    assert_eq!(run.events().len(), events, "no event");
    assert_eq!(run.ok(Input::Wake).reply, Reply::Duplicate);
    run.now += 4_000;
    let token = run.take();
    run.complete(&token, vec![complete()]);
    assert_eq!(breaches(&run), [began + 2_500], "one time, which never changes");
    assert!(matches!(run.last_event(), EventKind::WorkflowCompleted { .. }));
    assert_eq!(run.state.sla_breached_at().map(|at| at.as_millis()), Some(began + 2_500));
}

#[test]
fn a_run_that_ends_late_is_late_though_nobody_looked_at_the_clock() {
    let mut run = late(2_000, None);
    let token = run.take();
    run.now += 3_000;
    run.complete(&token, vec![complete()]);
    assert_eq!(breaches(&run).len(), 1);
    let mut other = late(2_000, None);
    other.now += 3_000;
    other.ok(Input::Terminate { reason: "enough".into(), request_id: None });
    assert_eq!(breaches(&other).len(), 1);
    let mut early = late(2_000, None);
    early.now += 1_999;
    early.ok(Input::Terminate { reason: "enough".into(), request_id: None });
    assert_eq!(breaches(&early).len(), 0);
}

#[test]
fn reference_07_an_sla_beyond_the_execution_timeout_is_that() {
    let mut run = late(10_000, Some(4_000));
    assert_eq!(run.state.started().unwrap().sla, Some(ms(4_000)));
    run.now += 4_000;
    run.ok(Input::Wake);
    assert_eq!(breaches(&run).len(), 1, "noted before the run ends");
    assert!(matches!(run.last_event(), EventKind::WorkflowExecutionTimedOut { .. }));
}

#[test]
fn reference_08_a_pause_puts_the_sla_off_by_its_length() {
    let mut run = late(2_000, None);
    let began = run.now;
    run.now += 1_000;
    run.ok(Input::Pause { longest: None, reason: String::new(), request_id: None });
    run.now += 10_000;
    assert_eq!(run.ok(Input::Wake).reply, Reply::Duplicate);
    run.ok(Input::Resume { request_id: None });
    assert_eq!(breaches(&run).len(), 0);
    run.now = began + 11_999;
    assert_eq!(run.ok(Input::Wake).reply, Reply::Duplicate);
    run.now += 1;
    run.ok(Input::Wake);
    assert_eq!(breaches(&run), [began + 12_000]);
}

#[test]
fn a_run_that_was_late_when_it_was_paused_is_noted_then() {
    let mut run = late(2_000, None);
    run.now += 3_000;
    run.ok(Input::Pause { longest: None, reason: String::new(), request_id: None });
    assert_eq!(breaches(&run), [run.now]);
}

#[test]
fn a_chain_keeps_its_sla_and_other_code_brings_its_own() {
    let mut run = late(2_000, Some(60_000));
    let other = WorkflowOptions { sla: Some(ms(500)), execution_timeout: Some(ms(9_000)), chain_execution_timeout: Some(ms(1)) };
    run.types.workflows.insert(harvest_ids::WorkflowType::new("other").unwrap(), other);
    let token = run.take();
    let before = run.state.clone();
    let same = run.complete(&token, vec![continue_as_new()]).successor.unwrap().started;
    assert_eq!((same.sla, same.execution_timeout), (Some(ms(2_000)), Some(ms(60_000))));
    let to = harvest_workflow_core::command::Command::ContinueAsNew {
        input: payload("2"),
        workflow_type: Some(harvest_ids::WorkflowType::new("other").unwrap()),
        task_queue: None,
    };
    let mut twin = Run { state: before.clone(), log: run.log[..usize::try_from(before.record_count()).unwrap()].to_vec(), ..run };
    let changed = twin.complete(&token, vec![to]).successor.unwrap().started;
    assert_eq!((changed.sla, changed.execution_timeout, changed.chain_execution_timeout), (Some(ms(500)), Some(ms(9_000)), None));
}

#[test]
fn a_child_has_the_sla_of_its_type() {
    let mut child = started("child-1");
    child.parent =
        Some(harvest_workflow_core::event::Parent { execution_id: started("parent").execution_id, initiated: harvest_ids::EventId(3), detached: false });
    let mut run = Run::new();
    run.types.workflows.insert(child.workflow_type.clone(), WorkflowOptions { sla: Some(ms(700)), ..WorkflowOptions::default() });
    run.ok(Input::Start { started: Box::new(child), carried: Carried::default() });
    assert_eq!(run.state.started().unwrap().sla, Some(ms(700)));
}
