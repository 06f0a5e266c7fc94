//! `harvest limits set`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::input;
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_frontend::json::ChangedLimitsJson;
use harvest_proto::v1;
use std::time::Duration;

/// Changes fleet limits and waits until every shard has acknowledged the change.
#[derive(Debug, Args)]
pub struct Set {
    /// Ceiling of a specified execution timeout, e.g. 24h; `none` removes it.
    #[arg(long, value_name = "SPAN", value_parser = span_or_none, required_unless_present = "max_workflow_chain_timeout")]
    max_workflow_execution_timeout: Option<SpanOrNone>,
    /// Ceiling of a chain's lifetime, which is also that of chains whose type declares none, e.g. 30d; `none` removes it.
    #[arg(long, value_name = "SPAN", value_parser = span_or_none)]
    max_workflow_chain_timeout: Option<SpanOrNone>,
    /// How long to wait for acknowledgements, at most 10s.
    #[arg(long, value_name = "SPAN", value_parser = wait, default_value = "2s")]
    wait: Duration,
    /// Who asks, for the audit.
    #[arg(long, env = "USER", default_value = "")]
    actor: String,
    /// Why, for the audit.
    #[arg(long, default_value = "")]
    reason: String,
}

/// A span or its absence.
#[derive(Debug, Clone, Copy)]
struct SpanOrNone(Option<Duration>);

fn span_or_none(text: &str) -> Result<SpanOrNone, String> {
    if text == "none" { Ok(SpanOrNone(None)) } else { input::span(text).map(|span| SpanOrNone(Some(span))) }
}

/// The longest wait for acknowledgements that the fleet allows.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

fn wait(text: &str) -> Result<Duration, String> {
    input::span(text).and_then(|span| if span > LONGEST_WAIT { Err("at most 10s are allowed".to_owned()) } else { Ok(span) })
}

impl Set {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let (execution, chain) = (self.max_workflow_execution_timeout, self.max_workflow_chain_timeout);
        let named = [(execution, "max_workflow_execution_timeout_ms"), (chain, "max_workflow_chain_timeout_ms")];
        let millis = |given: Option<SpanOrNone>| given.and_then(|SpanOrNone(span)| span).map(input::millis);
        let request = v1::PatchFleetLimitsRequest {
            update_mask: named.into_iter().filter(|(given, _)| given.is_some()).map(|(_, field)| field.to_owned()).collect(),
            limits: Some(v1::FleetLimits { max_workflow_execution_timeout_ms: millis(execution), max_workflow_chain_timeout_ms: millis(chain) }),
            wait_ms: Some(input::millis(self.wait)),
            actor: self.actor,
            reason: self.reason,
        };
        let reply = fleet.admin(self.wait, request, |mut client, call| async move { client.patch_fleet_limits(call).await }).await?;
        let (acknowledged, pending) = (reply.acknowledged, reply.pending.clone());
        match fleet.output {
            Output::Json => output::json(&ChangedLimitsJson::from(reply))?,
            Output::Table => {
                super::show(reply.limits, reply.version)?;
                output::line(format_args!("acknowledged by {acknowledged} shards"))?;
                if !pending.is_empty() {
                    let pending: Vec<String> = pending.iter().map(u32::to_string).collect();
                    output::line(format_args!("not yet by shards {}: their starts may still use older limits", pending.join(", ")))?;
                }
            }
        }
        Ok(())
    }
}
