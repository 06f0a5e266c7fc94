//! Local activities, with the bench in the place of the worker that runs them.

use super::bench::{Bench, registry};
use crate::{activities, workflows};
use harvest_workflow_core::event::EventKind;

mod local {
    use crate::prelude::*;
    use std::time::Duration;

    #[activity(local = true)]
    pub(super) async fn hash(_ctx: &ActivityContext, text: String) -> Result<String, ActivityFailure> {
        Ok(text)
    }

    /// Two at once, a timer that is dropped in the same decision, one more, and one whose future is dropped.
    #[workflow]
    pub(super) async fn locals(ctx: &WorkflowContext) -> Result<String, HarvestError> {
        let dropped = ctx.start_timer("dropped", Duration::from_secs(60));
        let (one, two) = futures::join!(ctx.execute_activity(&hash, "one".to_owned()), ctx.execute_activity(&hash, "two".to_owned()));
        drop(dropped);
        let failed = ctx.execute_activity(&hash, "fails".to_owned()).await;
        drop(ctx.execute_local_activity(&hash, "unwanted".to_owned()));
        ctx.timer("kept", Duration::from_secs(1)).await?;
        let last: String = ctx.execute_local_activity_raw("hash", "last").await?;
        Ok(format!("{} {} {:?} {last}", one?, two?, failed.map_err(|error| error.error_type().to_owned())))
    }

    #[workflow]
    pub(super) async fn too_slow(ctx: &WorkflowContext) -> Result<String, HarvestError> {
        let options = ActivityOptions::new().queue("elsewhere");
        let refused = ctx.execute_local_activity_with_opts(&hash, "x".to_owned(), options).await;
        assert!(matches!(refused, Err(HarvestError::InvalidArgument { .. })), "{refused:?}");
        match ctx.execute_activity(&hash, "slow".to_owned()).await {
            Err(HarvestError::Timeout { timeout: TimeoutKind::StartToClose, attempt, .. }) => Ok(format!("too slow {attempt} times")),
            other => other,
        }
    }
}

fn local_end(activity: &harvest_sdk_replay::LocalActivity) -> harvest_sdk_replay::LocalEnd {
    use harvest_sdk_replay::{LocalEnd, LocalFailure};
    let text = String::from_utf8(activity.input.data.to_vec()).unwrap();
    let failure = |error_type: &str, timeout| LocalFailure { failure: harvest_workflow_core::payload::Failure::engine(error_type, "for a test"), timeout };
    match text.as_str() {
        "\"fails\"" => LocalEnd { failures: vec![failure("One", None), failure("Two", None)], output: None },
        "\"slow\"" => LocalEnd { failures: vec![failure("StartToClose", Some(harvest_workflow_core::event::ActivityTimeout::StartToClose))], output: None },
        _ => LocalEnd { failures: vec![failure("First", None)], output: Some(activity.input.clone()) },
    }
}

#[test]
fn local_activities_run_within_their_decision_and_replay_as_they_ended() {
    let registry = registry(workflows![local::locals, local::too_slow], activities![local::hash]);
    let mut bench = Bench::new(registry.clone(), "locals", ());
    let mut run = bench.run();
    bench.task_with_locals(&mut run, local_end);
    let timers = bench.events.iter().filter(|event| matches!(event.kind, EventKind::TimerStarted { .. })).count();
    assert_eq!(timers, 1, "the dropped one was never sent");
    bench.pass(1_000);
    bench.task_with_locals(&mut run, local_end);
    assert_eq!(bench.outcome(), r#""one two Err(\"Two\") last""#);
    let count = |of: fn(&EventKind) -> bool| bench.events.iter().filter(|event| of(&event.kind)).count();
    assert_eq!(count(|kind| matches!(kind, EventKind::LocalActivityScheduled { .. })), 5);
    assert_eq!(count(|kind| matches!(kind, EventKind::LocalActivityCompleted { .. })), 3);
    assert_eq!(count(|kind| matches!(kind, EventKind::LocalActivityExhausted { .. })), 1);
    assert_eq!(count(|kind| matches!(kind, EventKind::LocalActivityFailed { .. })), 5);

    let mut slow = Bench::new(registry, "too_slow", ());
    let mut run = slow.run();
    slow.task_with_locals(&mut run, local_end);
    assert_eq!(slow.outcome(), "\"too slow 1 times\"");
}

#[test]
fn code_that_runs_another_local_activity_than_the_recorded_one_is_found_out() {
    let registry = registry(workflows![local::too_slow], activities![local::hash]);
    let mut bench = Bench::new(registry, "too_slow", ());
    let mut run = bench.run();
    bench.task_with_locals(&mut run, local_end);
    for event in &mut bench.events {
        if let EventKind::LocalActivityScheduled { activity_type, .. } = &mut event.kind {
            *activity_type = harvest_ids::ActivityType::new("another").unwrap();
        }
    }
    let mut again = bench.run();
    again.feed(bench.events.iter().cloned()).unwrap();
    assert!(matches!(again.replay(), Err(crate::workflow::run::RunError::Mismatch(_))));
}
