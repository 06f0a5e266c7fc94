//! Single rules.

use super::program::{Op, Program, schedule, signal_name, timer};
use super::server::Server;
use crate::*;
use harvest_ids::EventId;
use harvest_workflow_core::command::Command;
use harvest_workflow_core::event::EventKind;
use harvest_workflow_core::payload::{Failure, Payload};

/// One live task of `program`, recorded.
fn task(server: &mut Server, machine: &mut Machine, program: &mut Program) -> Vec<Command> {
    let from = usize::try_from(machine.next_event().0 - 1).unwrap();
    machine.feed(server.history[from..].iter().cloned()).unwrap();
    machine.begin_task(server.last()).unwrap();
    program.drive(machine).unwrap();
    let completion = machine.take_completion().unwrap();
    server.complete(server.last(), completion.clone());
    completion.commands
}

fn replay(server: &Server, ops: Vec<Op>) -> Result<(), ReplayError> {
    let mut machine = Machine::new();
    machine.feed(server.history.iter().cloned()).unwrap();
    Program::new(ops).drive(&mut machine)
}

#[test]
fn a_mismatch_names_what_the_history_has_and_what_the_code_did() {
    let mut server = Server::new();
    task(&mut server, &mut Machine::new(), &mut Program::new(vec![Op::Activity(1)]));
    let Err(ReplayError::Mismatch(mismatch)) = replay(&server, vec![Op::Timer(2)]) else { panic!("no mismatch") };
    assert_eq!((mismatch.expected.as_str(), mismatch.actual.as_str(), mismatch.event_id), ("activity a1", "timer t2", EventId(3)));
    let Err(ReplayError::Mismatch(mismatch)) = replay(&server, vec![]) else { panic!("no mismatch") };
    assert_eq!((mismatch.expected.as_str(), mismatch.actual.as_str()), ("activity a1", "completion of the workflow"));
    let Err(ReplayError::Mismatch(mismatch)) = replay(&server, vec![Op::Random(1), Op::Activity(1)]) else { panic!("no mismatch") };
    assert_eq!((mismatch.expected.as_str(), mismatch.actual.as_str()), ("no further side effect in this decision", "side effect Random"));
    let Err(ReplayError::Mismatch(mismatch)) = replay(&server, vec![Op::Signal]) else { panic!("no mismatch") };
    assert_eq!((mismatch.expected.as_str(), mismatch.actual.as_str()), ("activity a1", "nothing more in this decision"));
}

#[test]
fn what_is_started_and_cancelled_in_one_task_is_never_sent() {
    let mut server = Server::new();
    let commands = task(&mut server, &mut Machine::new(), &mut Program::new(vec![Op::Regret(1), Op::Activity(2)]));
    assert_eq!(commands.len(), 1);
    replay(&server, vec![Op::Regret(1), Op::Activity(2)]).unwrap();
}

#[test]
fn a_signal_recorded_before_the_timer_wins_and_the_timer_is_cancelled() {
    let mut server = Server::new();
    let (mut machine, mut program) = (Machine::new(), Program::new(vec![Op::SignalOrTimer]));
    task(&mut server, &mut machine, &mut program);
    server.signal("go", "1");
    server.end(EventId(3));
    task(&mut server, &mut machine, &mut program);
    assert!(program.seen[0].contains("Signal"), "{:?}", program.seen);
    let cancelled = server.history.iter().any(|event| matches!(event.kind, EventKind::TimerCancelled { started: EventId(3), .. }));
    assert!(cancelled);
}

#[test]
fn a_timer_that_fired_before_the_signal_wins_and_the_signal_stays_unread() {
    let mut server = Server::new();
    let (mut machine, mut program) = (Machine::new(), Program::new(vec![Op::SignalOrTimer, Op::Timer(1)]));
    task(&mut server, &mut machine, &mut program);
    server.end(EventId(3));
    server.signal("go", "1");
    task(&mut server, &mut machine, &mut program);
    assert!(program.seen[0].contains("Fired"), "{:?}", program.seen);
    assert_eq!(machine.unread_signals(&signal_name()), 1);
}

#[test]
fn draining_takes_signals_that_the_task_has_even_when_their_turn_has_not_come() {
    let mut server = Server::new();
    let (mut machine, mut program) = (Machine::new(), Program::new(vec![Op::Activity(1), Op::Drain]));
    task(&mut server, &mut machine, &mut program);
    server.end(EventId(3));
    server.signal("go", "1");
    let commands = task(&mut server, &mut machine, &mut program);
    assert_eq!(program.seen.len(), 2);
    assert!(matches!(commands[..], [Command::CompleteWorkflow { .. }]));
}

#[test]
fn signals_that_came_with_the_start_are_there_when_the_code_begins() {
    let mut server = Server::new();
    server.signal("go", "1");
    let mut program = Program::new(vec![Op::Drain]);
    task(&mut server, &mut Machine::new(), &mut program);
    assert_eq!(program.seen.len(), 1);
}

#[test]
fn a_gap_is_refused_and_an_overlap_is_skipped() {
    let mut server = Server::new();
    server.signal("go", "1");
    server.signal("go", "2");
    let mut machine = Machine::new();
    machine.feed(server.history[..1].iter().cloned()).unwrap();
    assert_eq!(machine.feed(server.history[2..].iter().cloned()), Err(FeedError::Gap { expected: EventId(2), found: EventId(3) }));
    machine.feed(server.history.iter().cloned()).unwrap();
    assert_eq!(machine.next_event(), EventId(4));
}

#[test]
fn a_decision_of_another_worker_is_noticed_by_who_submitted_its_own() {
    let mut server = Server::new();
    let (mut machine, mut program) = (Machine::new(), Program::new(vec![Op::Signal]));
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(EventId(1)).unwrap();
    program.drive(&mut machine).unwrap();
    machine.take_completion().unwrap();
    server.signal("other", "1");
    server.complete(EventId(2), Completion::default());
    machine.feed(server.history.iter().cloned()).unwrap();
    assert_eq!(machine.begin_task(EventId(3)), Err(ReplayError::NotOurs { event_id: EventId(3) }));
}

#[test]
fn the_same_decision_of_another_worker_with_another_random_value_is_noticed() {
    let mut server = Server::new();
    let (mut machine, mut program) = (Machine::new(), Program::new(vec![Op::Random(1), Op::Signal]));
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(EventId(1)).unwrap();
    program.drive(&mut machine).unwrap();
    machine.take_completion().unwrap();
    task(&mut server, &mut Machine::new(), &mut Program::new(vec![Op::Random(2), Op::Signal]));
    server.signal("go", "1");
    machine.feed(server.history.iter().cloned()).unwrap();
    assert_eq!(machine.begin_task(server.last()), Err(ReplayError::NotOurs { event_id: EventId(2) }));
}

#[test]
fn a_loop_that_never_waits_is_stopped() {
    let mut server = Server::new();
    server.signal("go", "1");
    let mut machine = Machine::new().with_max_commands(3);
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(EventId(2)).unwrap();
    let mut program = Program::new((0..10).map(Op::Random).collect());
    assert_eq!(program.drive(&mut machine), Err(ReplayError::TooManyCommands { allowed: 3 }));
}

#[test]
fn a_run_that_the_engine_failed_replays() {
    for error_type in ["HistoryCapExceeded", "HistoryBytesCapExceeded", "HandlerPanic", "PayloadTooLarge"] {
        let mut server = Server::new();
        task(&mut server, &mut Machine::new(), &mut Program::new(vec![Op::Activity(1)]));
        server.push(EventKind::WorkflowFailed { failure: Failure::engine(error_type, "too much") });
        replay(&server, vec![Op::Activity(1)]).unwrap();
    }
}

#[test]
fn dropping_a_future_after_detaching_asks_for_nothing() {
    let server = Server::new();
    let mut machine = Machine::new();
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(EventId(1)).unwrap();
    assert!(matches!(machine.advance(), Ok(Step::Start(_))));
    let handle = timer(&mut machine, "t");
    machine.detach();
    machine.abandon(handle);
    assert_eq!(machine.take_completion().unwrap().commands.len(), 1);
}

#[test]
fn an_abandoned_activity_runs_on_and_its_end_is_dropped() {
    let mut server = Server::new();
    let mut machine = Machine::new();
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(EventId(1)).unwrap();
    assert!(matches!(machine.advance(), Ok(Step::Start(_))));
    let handle = schedule(&mut machine, 1);
    machine.abandon(handle);
    assert_eq!(machine.advance(), Ok(Step::AtRest));
    server.complete(EventId(1), machine.take_completion().unwrap());
    server.end(EventId(3));
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(server.last()).unwrap();
    assert_eq!(machine.advance(), Ok(Step::AtRest));
    assert_eq!(machine.take(handle), None);
}

#[test]
fn a_gate_takes_the_new_branch_live_and_the_old_one_for_a_run_from_before_it() {
    let mut server = Server::new();
    let (mut machine, mut program) = (Machine::new(), Program::new(vec![Op::Activity(1)]));
    task(&mut server, &mut machine, &mut program);
    let mut gated = Machine::new();
    gated.feed(server.history.iter().cloned()).unwrap();
    let mut with_gate = Program::new(vec![Op::Patched(0), Op::Activity(1), Op::Patched(0)]);
    with_gate.drive(&mut gated).unwrap();
    assert_eq!(with_gate.seen, ["0: false"]);
    server.end(EventId(3));
    let commands = task(&mut server, &mut gated, &mut with_gate);
    assert!(matches!(&commands[0], Command::RecordMarker { name, .. } if name == "patch:p0"), "{commands:?}");
    replay(&server, vec![Op::Patched(0), Op::Activity(1), Op::Patched(0)]).unwrap();
}

#[test]
fn a_two_version_gate_is_seen_as_patched_and_a_deprecated_gate_lets_its_marker_pass() {
    let mut server = Server::new();
    let mut machine = Machine::new();
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(EventId(1)).unwrap();
    assert!(matches!(machine.advance(), Ok(Step::Start(_))));
    assert_eq!(machine.version("v", 1, 2), 2);
    assert_eq!(machine.version("v", 1, 3), 2);
    assert!(machine.patched("q"));
    machine.finish(Command::CompleteWorkflow { output: Payload::null() });
    assert_eq!(machine.advance(), Ok(Step::AtRest));
    server.complete(EventId(1), machine.take_completion().unwrap());

    let mut again = Machine::new();
    again.feed(server.history.iter().cloned()).unwrap();
    assert!(matches!(again.advance(), Ok(Step::Start(_))));
    assert!(again.patched("v"));
    again.deprecate_patch("q");
    again.finish(Command::CompleteWorkflow { output: Payload::null() });
    assert_eq!(again.advance(), Ok(Step::AtRest));
}

#[test]
fn who_waits_for_a_signal_gets_it_in_its_turn_and_who_looks_gets_it_at_once() {
    let mut server = Server::new();
    let mut machine = Machine::new();
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(EventId(1)).unwrap();
    assert!(matches!(machine.advance(), Ok(Step::Start(_))));
    let deadline = timer(&mut machine, "t");
    assert_eq!(machine.advance(), Ok(Step::AtRest));
    server.complete(EventId(1), machine.take_completion().unwrap());
    server.end(EventId(3));
    server.signal("go", "1");
    server.signal("go", "2");
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(server.last()).unwrap();
    assert_eq!(machine.advance(), Ok(Step::Wake(WaitKey::Item(deadline))));
    assert_eq!(machine.take_signal(&signal_name(), Take::InOrder), None);
    assert_eq!(machine.take_signal(&signal_name(), Take::All).unwrap().payload, Payload::json("1"));
    assert_eq!(machine.advance(), Ok(Step::Wake(WaitKey::Signal(signal_name()))));
    assert_eq!(machine.take_signal(&signal_name(), Take::InOrder), None);
    assert_eq!(machine.advance(), Ok(Step::Wake(WaitKey::Signal(signal_name()))));
    assert_eq!(machine.take_signal(&signal_name(), Take::InOrder).unwrap().payload, Payload::json("2"));
}

#[test]
fn a_timer_that_fires_while_the_code_cancels_it_stays_cancelled_for_the_code() {
    let mut server = Server::new();
    let mut machine = Machine::new();
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(EventId(1)).unwrap();
    assert!(matches!(machine.advance(), Ok(Step::Start(_))));
    let handle = timer(&mut machine, "t");
    assert_eq!(machine.advance(), Ok(Step::AtRest));
    server.complete(EventId(1), machine.take_completion().unwrap());
    let seen = server.signal("go", "1");
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(seen).unwrap();
    assert!(matches!(machine.advance(), Ok(Step::Wake(_))));
    assert_eq!(machine.cancel(handle), Some(WaitKey::Item(handle)));
    assert!(machine.take_signal(&signal_name(), Take::InOrder).is_some());
    assert_eq!(machine.advance(), Ok(Step::AtRest));
    server.end(EventId(3)); // it fires before the decision arrives
    server.complete(seen, machine.take_completion().unwrap());
    machine.feed(server.history.iter().cloned()).unwrap();
    machine.begin_task(server.last()).unwrap();
    assert_eq!(machine.advance(), Ok(Step::AtRest));
    assert_eq!(machine.take(handle), Some(Resolution::Cancelled));
}

#[test]
fn a_machine_is_caught_up_when_its_decision_is_recorded_whole_and_nothing_is_unread() {
    let mut server = Server::new();
    let (mut machine, mut program) = (Machine::new(), Program::new(vec![Op::Activity(1), Op::Activity(2)]));
    assert!(!machine.is_caught_up(), "it has nothing");
    task(&mut server, &mut machine, &mut program);
    assert!(!machine.is_caught_up(), "what was submitted is not recorded");
    machine.feed([server.history[1].clone()]).unwrap();
    assert!(!machine.is_caught_up(), "a command's event is missing");
    machine.feed([server.history[2].clone()]).unwrap();
    assert!(machine.is_caught_up());
    assert_eq!((machine.next_event(), machine.newest_at()), (EventId(4), server.history[2].at));
    // What comes next is known to whoever ends the activity: it can be decided before it is recorded.
    server.end(EventId(3));
    task(&mut server, &mut machine, &mut program);
    assert_eq!(program.seen.len(), 1, "{:?}", program.seen);
    server.signal("go", "1");
    machine.feed(server.history[4..].iter().cloned()).unwrap();
    assert!(!machine.is_caught_up(), "the code has not seen the signal");
}

#[test]
fn a_machine_that_has_followed_a_query_is_caught_up_until_there_is_news() {
    let mut server = Server::new();
    task(&mut server, &mut Machine::new(), &mut Program::new(vec![Op::Activity(1)]));
    let (mut machine, mut program) = (Machine::new(), Program::new(vec![Op::Activity(1)]));
    machine.feed(server.history.iter().cloned()).unwrap();
    assert!(!machine.is_caught_up(), "the code has not run");
    machine.begin_query().unwrap();
    program.drive(&mut machine).unwrap();
    assert!(machine.is_caught_up());
    server.end(EventId(3));
    machine.feed(server.history.iter().cloned()).unwrap();
    assert!(!machine.is_caught_up());
}
