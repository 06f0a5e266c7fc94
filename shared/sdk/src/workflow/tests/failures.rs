//! Code that misbehaves, and code that has changed.

use super::bench::{Bench, registry};
use super::code::*;
use crate::workflow::run::{Run, RunError};
use crate::{ReplayFailure, WorkflowReplayer, activities, workflows};
use harvest_workflow_core::decision::Reply;
use harvest_workflow_core::input::Input;
use std::sync::Arc;

fn bench(workflow_type: &str, input: impl serde::Serialize) -> Bench {
    let all = workflows![sequence, counter, panics, sleeps, spins, approval];
    Bench::new(registry(all, activities![double, add]), workflow_type, input)
}

#[test]
fn a_panic_is_a_failed_task_and_the_worker_lives() {
    let mut bench = bench("panics", ());
    let (decided, _) = bench.decide_only(&mut bench.run());
    assert_eq!(decided, Err(RunError::Panicked("it broke".to_owned())));
}

#[test]
fn waiting_for_something_that_is_not_durable_is_a_failed_task() {
    let mut bench = bench("sleeps", ());
    let (decided, _) = bench.decide_only(&mut bench.run());
    assert!(matches!(decided, Err(RunError::Worker(message)) if message.contains("not durable")));
}

#[test]
fn an_unknown_type_is_a_failed_task_that_names_it() {
    let mut bench = bench("nobody", ());
    let (decided, _) = bench.decide_only(&mut bench.run());
    assert!(matches!(decided, Err(RunError::Worker(message)) if message.contains("nobody")));
}

#[test]
fn an_input_of_another_shape_fails_the_run() {
    let mut bench = bench("sequence", "text");
    bench.task(&mut bench.run());
    assert!(bench.outcome().starts_with("failed InvalidInput"), "{}", bench.outcome());
}

#[test]
fn an_activity_result_of_another_shape_is_an_error_of_the_step() {
    let mut bench = bench("sequence", 1);
    let mut run = bench.run();
    bench.task(&mut run);
    bench.complete_activity("double", "text");
    bench.task(&mut run);
    assert!(bench.outcome().starts_with("failed Error: output of activity double"), "{}", bench.outcome());
}

#[test]
fn changed_code_is_a_mismatch_in_a_task_in_a_query_and_in_the_replayer() {
    use crate::prelude::*;
    mod changed {
        use crate::prelude::*;
        #[workflow]
        pub(super) async fn sequence(ctx: &WorkflowContext, _n: u32) -> Result<u32, String> {
            Ok(ctx.execute_activity_raw("triple", 1, "").await?)
        }
    }
    let mut bench = bench("sequence", 1);
    bench.task(&mut bench.run());
    bench.complete_activity("double", 2);
    bench.registry = registry(workflows![changed::sequence], activities![]);
    let (decided, _) = bench.decide_only(&mut bench.run());
    let Err(RunError::Mismatch(mismatch)) = decided else { panic!("{decided:?}") };
    assert_eq!((mismatch.expected.as_str(), mismatch.actual.as_str(), mismatch.event_id.0), ("activity double", "activity triple", 3));
    let mut query = bench.run();
    query.feed(bench.events.iter().cloned()).unwrap();
    assert!(matches!(query.replay(), Err(RunError::Mismatch(_))));

    let events = bench.events.clone();
    WorkflowReplayer::new().workflows(workflows![sequence]).replay_events(events.clone()).unwrap();
    let failed = WorkflowReplayer::new().workflows(workflows![changed::sequence]).replay_events(events).unwrap_err();
    assert!(matches!(failed, ReplayFailure::NonDeterministic { event_id: 3, .. }), "{failed}");
    let _unused: fn() -> ActivityOptions = ActivityOptions::new;
}

#[test]
fn a_decision_that_was_sent_back_is_made_again_with_the_news() {
    let mut bench = bench("counter", 1);
    let mut run = bench.run();
    bench.signal("add", 0);
    let (decided, token) = bench.decide_only(&mut run);
    bench.signal("add", 9);
    assert_eq!(bench.complete(token, decided.unwrap()), Reply::TryAgain);
    bench.input(Input::Wake).unwrap();
    bench.task(&mut bench.run());
    assert_eq!(bench.outcome(), "1"); // the code does not drain: it ended with the first zero, and the server let it
}

#[test]
fn a_cached_run_whose_decision_was_not_taken_is_out_of_step() {
    let mut bench = bench("sequence", 1);
    let mut run = bench.run();
    let (decided, token) = bench.decide_only(&mut run);
    decided.unwrap();
    bench.now += 20_000;
    bench.input(Input::Wake).unwrap(); // the task timed out
    let (decided, _) = bench.decide_only(&mut run);
    assert!(matches!(decided, Err(RunError::OutOfStep(_))), "{decided:?}");
    drop(token);
}

#[test]
fn destructors_of_an_evicted_run_ask_for_nothing_and_the_context_is_freed() {
    let mut bench = bench("approval", ());
    let mut run = bench.run();
    bench.task(&mut run);
    let registry: Arc<_> = bench.registry.clone();
    let before = Arc::strong_count(&registry);
    drop(run);
    assert_eq!(Arc::strong_count(&registry), before - 1);
    let mut counting = self::bench("counter", 1);
    counting.registry = registry.clone();
    let run: Run = counting.run();
    drop(run);
}

#[test]
fn code_that_asks_without_end_is_stopped() {
    use crate::prelude::*;
    #[workflow]
    async fn greedy(ctx: &WorkflowContext) -> Result<(), String> {
        loop {
            if ctx.side_effect("once", || 1).await.is_err() || ctx.random_u64() == 0 {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }
    let mut bench = Bench::new(registry(workflows![greedy], activities![]), "greedy", ());
    let (decided, _) = bench.decide_only(&mut bench.run());
    assert!(matches!(&decided, Err(RunError::Worker(_))), "{decided:?}");
}
