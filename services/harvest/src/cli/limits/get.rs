//! `harvest limits get`.

use crate::cli::connection::Connection;
use crate::cli::error::CliError;
use crate::cli::output::{self, Output};
use clap::Args;
use harvest_frontend::json::LimitsJson;
use harvest_proto::v1;
use std::time::Duration;

/// Shows the fleet limits in force.
#[derive(Debug, Args)]
pub struct Get {}

impl Get {
    pub(super) async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let reply = fleet.admin(Duration::ZERO, v1::GetFleetLimitsRequest {}, |mut client, call| async move { client.get_fleet_limits(call).await }).await?;
        match fleet.output {
            Output::Json => output::json(&LimitsJson::from(reply))?,
            Output::Table => super::show(reply.limits, reply.version)?,
        }
        Ok(())
    }
}
