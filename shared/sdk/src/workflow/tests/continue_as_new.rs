//! When it is time to continue as new.

use super::bench::{Bench, registry};
use crate::{activities, workflows};
use harvest_ids::DurationMs;
use harvest_workflow_core::event::EventKind;

/// What the probe recorded: when, and what it said.
fn readings(bench: &Bench) -> Vec<String> {
    let reading = |event: &harvest_workflow_core::event::Event| match &event.kind {
        EventKind::SideEffectRecorded { name: Some(name), value, .. } if name.starts_with("__") => Some(String::from_utf8(value.data.to_vec()).unwrap()),
        _ => None,
    };
    bench.events.iter().filter_map(reading).collect()
}

mod looping {
    use crate::prelude::*;
    use std::time::Duration;

    #[workflow]
    pub(super) async fn looping(ctx: &WorkflowContext, turn: u32) -> Result<u32, HarvestError> {
        loop {
            if ctx.should_continue_as_new() {
                ctx.continue_as_new(turn + 1).await?;
            }
            ctx.timer("turn", Duration::from_secs(3)).await?;
        }
    }
}

#[test]
fn reference_12_time_to_continue_comes_at_four_fifths_of_the_timeout_with_one_reading_a_call() {
    let registry = registry(workflows![looping::looping], activities![]);
    let mut bench = Bench::with_timeout(registry.clone(), "looping", 1_u32, Some(DurationMs::from_millis_const(10_000)));
    let mut run = bench.run();
    bench.task(&mut run);
    for _ in 0..2 {
        bench.pass(3_000);
        bench.task(&mut run);
    }
    assert_eq!(readings(&bench).len(), 3, "one a call");
    assert!(bench.is_open(), "6 of 10 seconds are used");
    bench.pass(3_000);
    bench.task(&mut run);
    assert!(!bench.is_open(), "9 of 10 seconds are used");
    assert!(readings(&bench)[3].contains("\"answer\":true"), "{:?}", readings(&bench));

    let mut free = Bench::with_timeout(registry, "looping", 1_u32, None);
    let mut run = free.run();
    free.task(&mut run);
    free.pass(3_000);
    free.task(&mut run);
    assert_eq!(readings(&free), Vec::<String>::new(), "none without a timeout");
}

#[test]
fn reference_12_a_run_that_was_paused_for_long_need_not_continue_when_it_goes_on() {
    let registry = registry(workflows![looping::looping], activities![]);
    let mut bench = Bench::with_timeout(registry, "looping", 1_u32, Some(DurationMs::from_millis_const(10_000)));
    let mut run = bench.run();
    bench.task(&mut run);
    bench.pause(60_000);
    bench.task(&mut run);
    assert!(bench.is_open(), "a minute has passed, but not for the run");
    for _ in 0..3 {
        bench.pass(3_000);
        bench.task(&mut run);
    }
    assert!(!bench.is_open());
}

#[test]
fn reference_13_a_history_from_before_there_were_readings_replays_and_picks_them_up_past_its_end() {
    let before = registry(workflows![old::looping], activities![]);
    let mut bench = Bench::with_timeout(before, "looping", 1_u32, Some(DurationMs::from_millis_const(10_000)));
    let mut run = bench.run();
    bench.task(&mut run);
    bench.pass(9_000);
    bench.task(&mut run);
    assert_eq!(readings(&bench).len(), 0);
    bench.registry = registry(workflows![new::looping], activities![]);
    let mut run = bench.run();
    bench.pass(500);
    bench.task(&mut run);
    assert_eq!(readings(&bench).len(), 1, "from here on");
    assert!(!bench.is_open());
}

/// Code from before and after a release that asks: the author's own reading of the clock stands right behind the question.
mod old {
    use crate::prelude::*;
    use std::time::Duration;

    #[workflow]
    pub(super) async fn looping(ctx: &WorkflowContext, turn: u32) -> Result<u32, HarvestError> {
        let mut number = 0;
        loop {
            ctx.system_now();
            number += 1;
            ctx.timer(&format!("turn-{number}"), Duration::from_millis(if number == 1 { 9_000 } else { 500 })).await?;
            if number > turn + 9 {
                return Ok(number);
            }
        }
    }
}

mod new {
    use crate::prelude::*;
    use std::time::Duration;

    #[workflow]
    pub(super) async fn looping(ctx: &WorkflowContext, turn: u32) -> Result<u32, HarvestError> {
        let mut number = 0;
        loop {
            if ctx.should_continue_as_new() {
                ctx.continue_as_new(turn + 1).await?;
            }
            ctx.system_now();
            number += 1;
            ctx.timer(&format!("turn-{number}"), Duration::from_millis(if number == 1 { 9_000 } else { 500 })).await?;
            if number > turn + 9 {
                return Ok(number);
            }
        }
    }
}
