//! docs/guide/testing.md

use crate::activities::charge;
use crate::versions::{invoice, tax_by_country};
use harvest_sdk::prelude::*;
use harvest_sdk::{ReplayFailure, WorkflowReplayer};

/// Saved by `harvest workflow history --type invoice --id invoice-0 -o json` while the old code ran.
const BEFORE: &str = include_str!("../../../histories/invoice-before-tax-by-country.json");

#[test]
fn an_invoice_from_before_the_change_still_replays() {
    WorkflowReplayer::new().workflows(workflows![invoice]).replay_json(BEFORE).unwrap();
}

/// The same change without a gate.
#[workflow(name = "invoice")]
async fn careless(ctx: &WorkflowContext, cents: u64) -> Result<u64, HarvestError> {
    Ok(cents + ctx.execute_activity(&tax_by_country, (cents, "DE".to_owned())).await?)
}

#[test]
fn without_the_gate_it_does_not() {
    let failure = WorkflowReplayer::new().workflows(workflows![careless]).replay_json(BEFORE).unwrap_err();
    assert!(matches!(failure, ReplayFailure::NonDeterministic { event_id: 3, .. }), "{failure}");
}

#[tokio::test]
async fn a_card_over_its_limit_is_declined_for_good() {
    let failure = charge::call(&ActivityContext::for_test(), 200_000).await.unwrap_err();
    assert_eq!((failure.error_type.as_str(), failure.non_retryable), ("CardDeclined", true));
}
