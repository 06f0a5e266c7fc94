//! Ending in order: a signal cancels a token, services finish what they have begun, and after a time the process ends anyway.

use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Asks everything of the process to end.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// One that only [`Shutdown::begin`] begins: for tests and for several services in one process.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that SIGTERM or SIGINT begins too. A second signal ends the process at once.
    ///
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub fn on_signals() -> std::io::Result<Self> {
        Self::listening(true)
    }

    /// One that SIGTERM or SIGINT begins too; further signals change nothing. For a process that has others to end, and then ends at once.
    ///
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub fn on_first_signal() -> std::io::Result<Self> {
        Self::listening(false)
    }

    fn listening(second_ends: bool) -> std::io::Result<Self> {
        let shutdown = Self::new();
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let token = shutdown.token.clone();
        let listener = async move {
            for count in 0u8.. {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if count > 0 && second_ends {
                    tracing::warn!(signal = name, "second signal: ending at once");
                    std::process::exit(130);
                }
                tracing::info!(signal = name, "shutting down");
                token.cancel();
            }
        };
        #[allow(clippy::disallowed_methods)] // not tracked: it ends only with the process, so draining must not wait for it
        drop(tokio::spawn(listener));
        Ok(shutdown)
    }

    /// Begins the shutdown.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// The token that services wait on.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Returns when the shutdown has begun.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// Waits for all tasks of the process, at most `timeout`, and logs how many did not end.
    pub async fn drain(&self, timeout: Duration) {
        self.token.cancel();
        let left = crate::tasks::drain(timeout).await;
        if left > 0 {
            tracing::warn!(tasks = left, timeout_ms = timeout.as_millis(), "tasks did not end in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    #[tokio::test]
    async fn sigterm_begins_the_shutdown() {
        let shutdown = Shutdown::on_signals().unwrap();
        kill(Pid::this(), Signal::SIGTERM).unwrap();
        shutdown.begun().await;
    }

    #[tokio::test]
    async fn a_process_with_others_to_end_is_not_ended_by_a_second_signal() {
        let shutdown = Shutdown::on_first_signal().unwrap();
        kill(Pid::this(), Signal::SIGINT).unwrap();
        shutdown.begun().await;
        let again = Shutdown::on_first_signal().unwrap();
        kill(Pid::this(), Signal::SIGTERM).unwrap();
        again.begun().await; // the first listener has had that signal too
    }
}
