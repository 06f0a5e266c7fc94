//! `harvest worker`.

use super::connection::Connection;
use super::error::CliError;
use super::output::{self, Output};
use clap::Subcommand;
use harvest_frontend::json::WorkerJson;
use harvest_proto::v1;
use serde_json::json;
use std::time::Duration;

/// Connected workers.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists connected worker sessions.
    List,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// [`CliError`].
    pub async fn run(self, fleet: &Connection) -> Result<(), CliError> {
        let Self::List = self;
        let request = v1::ListWorkersRequest { namespace: fleet.namespace.clone() };
        let reply = fleet.admin(Duration::ZERO, request, |mut client, call| async move { client.list_workers(call).await }).await?;
        match fleet.output {
            Output::Json => output::json(&json!({ "workers": reply.workers.into_iter().map(WorkerJson::from).collect::<Vec<_>>() }))?,
            Output::Table => {
                let row = |it: v1::WorkerInfo| {
                    let (workflows, activities) = (it.workflow_types.join(", "), it.activity_types.join(", "));
                    [it.worker_id, it.identity, it.build_id, it.sdk, it.task_queues.join(", "), workflows, activities, output::instant(it.last_seen_ms)]
                };
                let headers = ["WORKER", "IDENTITY", "BUILD", "SDK", "QUEUES", "WORKFLOWS", "ACTIVITIES", "LAST SEEN"];
                output::table(headers, reply.workers.into_iter().map(row), "no workers")?;
            }
        }
        Ok(())
    }
}
