//! `harvest shard`.

use super::connection::Connection;
use super::error::CliError;
use super::output::{self, Output};
use clap::Subcommand;
use harvest_frontend::json::ShardJson;
use harvest_proto::v1;
use serde_json::json;
use std::time::Duration;

/// Shards and their owners.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists shards with their owners.
    List,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// [`CliError`].
    pub async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let Self::List = self;
        let reply = fleet.admin(Duration::ZERO, v1::ListShardsRequest {}, |mut client, call| async move { client.list_shards(call).await }).await?;
        match fleet.output {
            Output::Json => output::json(&json!({ "shards": reply.shards.into_iter().map(ShardJson::from).collect::<Vec<_>>() }))?,
            Output::Table => {
                let row = |it: v1::ShardInfo| {
                    let lease = if it.owner.is_empty() { "none".to_owned() } else { format!("{} ms", it.lease_remaining_ms) };
                    [it.shard_id.to_string(), it.slots.to_string(), it.owner, it.address, it.epoch.to_string(), lease]
                };
                output::table(["SHARD", "SLOTS", "OWNER", "ADDRESS", "EPOCH", "LEASE"], reply.shards.into_iter().map(row), "no shards")?;
            }
        }
        Ok(())
    }
}
