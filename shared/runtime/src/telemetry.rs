//! Logs by `tracing`.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// The environment variable that chooses the form of the logs: `json`, or `text` (the default).
pub const LOG_FORMAT: &str = "HARVEST_LOG_FORMAT";

/// Installs the log subscriber of the process, on standard error. `RUST_LOG` filters (default `info`); [`LOG_FORMAT`] `json` makes one
/// JSON object a line. Harmless when one is installed already.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let installed = if std::env::var(LOG_FORMAT).is_ok_and(|format| format.eq_ignore_ascii_case("json")) {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.try_init()
    };
    if let Err(error) = installed {
        tracing::debug!(%error, "a log subscriber is installed already");
    }
}
