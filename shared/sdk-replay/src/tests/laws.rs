//! Property tests: what ran live is what is replayed, whatever the interleaving.

use super::program::{Op, Program};
use super::server::Server;
use crate::{Machine, ReplayError};
use harvest_workflow_core::event::EventKind;
use proptest::prelude::*;

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0u8..4).prop_map(Op::Activity),
        (0u8..4).prop_map(Op::Regret),
        (0u8..4).prop_map(Op::Timer),
        (0u8..4).prop_map(Op::Race),
        Just(Op::SignalOrTimer),
        Just(Op::Signal),
        Just(Op::Drain),
        (0u64..100).prop_map(Op::Random),
        Just(Op::Named),
        Just(Op::Child),
        Just(Op::Detached),
        (0u8..4).prop_map(Op::CancelActivity),
        (0u8..4).prop_map(Op::Patched),
    ]
}

/// What the world does between and during tasks.
#[derive(Debug, Clone)]
enum News {
    Signal,
    /// The n-th open thing ends.
    End(usize),
    Cancel,
}

fn news() -> impl Strategy<Value = News> {
    prop_oneof![Just(News::Signal), (0usize..3).prop_map(News::End), (0usize..3).prop_map(News::End), Just(News::Cancel)]
}

fn happen(server: &mut Server, news: &[News]) {
    for one in news {
        match one {
            News::Signal => {
                let text = format!("{}", server.history.len());
                server.signal("go", &text);
            }
            News::End(n) => {
                let ids: Vec<_> = server.open.iter().map(|(id, _)| *id).collect();
                if let Some(id) = ids.get(n % ids.len().max(1)) {
                    server.end(*id);
                }
            }
            News::Cancel => {
                server.push(EventKind::WorkflowCancelRequested { reason: "stop".to_owned() });
            }
        }
    }
}

/// One task: before it, while it is with the worker, and whether the worker loses its cache first.
type Round = (Vec<News>, Vec<News>, bool);

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    prop::collection::vec((prop::collection::vec(news(), 0..4), prop::collection::vec(news(), 0..3), any::<bool>()), 1..25)
}

/// Runs `ops` live and returns the history and what the code saw.
fn live(ops: &[Op], rounds: &[Round]) -> (Server, Vec<String>) {
    let mut server = Server::new();
    let (mut machine, mut program) = (Machine::new(), Program::new(ops.to_vec()));
    for (before, during, evict) in rounds {
        happen(&mut server, before);
        if *evict {
            (machine, program) = (Machine::new(), Program::new(ops.to_vec()));
        }
        let from = usize::try_from(machine.next_event().0 - 1).unwrap();
        machine.feed(server.history[from..].iter().cloned()).unwrap();
        let seen = server.last();
        machine.begin_task(seen).unwrap();
        program.drive(&mut machine).unwrap();
        let completion = machine.take_completion().unwrap();
        happen(&mut server, during);
        server.complete(seen, completion);
        if server.closed {
            break;
        }
    }
    (server, program.seen)
}

fn replay(ops: &[Op], server: &Server) -> Result<Vec<String>, ReplayError> {
    let mut machine = Machine::new();
    let mut program = Program::new(ops.to_vec());
    machine.feed(server.history.iter().cloned()).unwrap();
    program.drive(&mut machine)?;
    Ok(program.seen)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_history_made_by_running_live_replays_from_scratch_and_the_code_sees_the_same(ops in prop::collection::vec(op(), 1..12), rounds in rounds()) {
        let (server, seen) = live(&ops, &rounds);
        prop_assert_eq!(replay(&ops, &server).unwrap(), seen);
    }

    #[test]
    fn code_that_asks_for_another_activity_is_a_mismatch_or_was_never_reached(ops in prop::collection::vec(op(), 1..12), rounds in rounds(), at in 0usize..12) {
        let (server, _) = live(&ops, &rounds);
        let mut changed = ops.clone();
        let at = at % ops.len();
        let reached = matches!(ops[at], Op::Activity(_));
        changed[at] = Op::Activity(99);
        let outcome = replay(&changed, &server);
        let old = server.history.iter().any(|event| matches!(&event.kind, EventKind::ActivityScheduled(a) if a.activity_type.as_str() == "a99"));
        prop_assert!(!old);
        if let Err(error) = &outcome {
            prop_assert!(matches!(error, ReplayError::Mismatch(_)), "{error}");
        }
        if reached && server.closed {
            prop_assert!(outcome.is_err());
        }
    }

    #[test]
    fn a_cut_history_never_panics(ops in prop::collection::vec(op(), 1..12), rounds in rounds(), cut in 1usize..60) {
        let (server, _) = live(&ops, &rounds);
        let mut machine = Machine::new();
        let end = cut.min(server.history.len());
        machine.feed(server.history[..end].iter().cloned()).unwrap();
        let _outcome = Program::new(ops).drive(&mut machine);
    }
}
