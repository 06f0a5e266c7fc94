//! What a person sees while it runs; nothing when standard error is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// One line that says what is going on.
pub struct Progress(ProgressBar);

impl Progress {
    /// An empty line.
    pub fn new() -> Self {
        let bar = ProgressBar::new_spinner().with_style(ProgressStyle::default_spinner());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Says what is done now.
    pub fn step(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Says how far a measurement is.
    pub fn running(&self, label: &str, elapsed: Duration, span: Duration, done: u64) {
        self.0.set_message(format!("{label}: {} of {} s, {done} done", elapsed.as_secs().min(span.as_secs()), span.as_secs()));
    }

    /// Says how many of how many are done.
    pub fn counting(&self, label: &str, done: u64, of: u64) {
        self.0.set_message(format!("{label}: {} of {of}", done.min(of)));
    }

    /// Prints without mixing with the line.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
