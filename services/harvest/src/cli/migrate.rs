//! `harvest migrate`: creates or upgrades the schema of a fleet's Postgres.

use super::error::CliError;
use super::output;
use clap::Args;
use harvest_persistence::postgres::migrate;

/// Creates or upgrades the schema of a fleet's Postgres. Harmless when it is up to date, and when several run at once.
#[derive(Debug, Args)]
pub struct Migrate {
    /// The database, e.g. postgres://harvest@127.0.0.1/harvest
    #[arg(long, env = "HARVEST_DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// How many shards a new fleet gets, 1 to 4096. It cannot be changed later.
    #[arg(long, env = "HARVEST_SHARDS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: u32,
}

impl Migrate {
    /// Runs the command.
    ///
    /// # Errors
    /// When the database cannot be reached, the migration fails, or standard output takes nothing.
    pub async fn run(self) -> Result<(), CliError> {
        let report = migrate(&self.database_url, self.shards).await.map_err(anyhow::Error::from)?;
        if report.applied.is_empty() && report.shards_created == 0 {
            output::line(format_args!("up to date: {} shards", report.shards))
        } else {
            for name in &report.applied {
                output::line(format_args!("applied {name}"))?;
            }
            output::line(format_args!("{} shards ({} created now)", report.shards, report.shards_created))
        }
    }
}
