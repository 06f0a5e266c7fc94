//! The committed histories still fit the code.

use harvest_integration_tests::{histories, samples};
use harvest_sdk::workflows;

/// Everything whose histories are committed.
fn code() -> Vec<harvest_sdk::WorkflowRegistration> {
    let mut code = samples::workflows();
    code.extend(workflows![harvest_examples::order::order]);
    code
}

#[test]
fn every_committed_history_replays_against_todays_code() {
    for (name, text) in histories::all().unwrap() {
        let events = histories::read(&text).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        histories::replay(events, code()).unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
}
