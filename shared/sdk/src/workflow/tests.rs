//! The executor against the real core, without a network.

mod bench;
mod code;
mod continue_as_new;
mod failures;
mod local_activities;
mod steps;

/// A run that has decided to wait for an activity, and the events that its decision became.
pub(crate) fn waiting_run() -> (super::run::Run, Vec<harvest_workflow_core::event::Event>) {
    let registry = bench::registry(crate::workflows![code::sequence], crate::activities![code::double, code::add]);
    let mut bench = bench::Bench::new(registry, "sequence", 20);
    let mut run = bench.run();
    bench.task(&mut run);
    (run, bench.events)
}
