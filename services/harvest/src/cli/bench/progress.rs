//! What a person sees while it runs: one line that changes on a terminal, a line now and then elsewhere. On standard error.

use crate::cli::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Seconds between lines about one measurement where nothing can be drawn.
const EVERY_SECS: u64 = 10;

/// Says what is going on.
pub struct Progress {
    bar: ProgressBar,
    /// What was said last where nothing can be drawn.
    said: Mutex<String>,
}

impl Progress {
    /// Nothing said yet.
    pub fn new() -> Self {
        let bar = ProgressBar::new_spinner().with_style(ProgressStyle::default_spinner());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, said: Mutex::default() }
    }

    /// Says what is done now.
    pub fn step(&self, what: &str) {
        self.say(what.to_owned(), what);
    }

    /// Says how far a measurement is.
    pub fn running(&self, label: &str, elapsed: Duration, span: Duration, done: u64) {
        let message = format!("{label}: {} of {} s, {done} done", elapsed.as_secs().min(span.as_secs()), span.as_secs());
        self.say(message, &format!("{label} {}", elapsed.as_secs() / EVERY_SECS));
    }

    /// Says how many of how many are done.
    pub fn counting(&self, label: &str, done: u64, of: u64) {
        let tenth = done.saturating_mul(10) / of.max(1);
        self.say(format!("{label}: {} of {of}", done.min(of)), &format!("{label} {tenth}"));
    }

    /// Draws the message; where that cannot be, prints it unless the last one said as much.
    fn say(&self, message: String, as_much_as: &str) {
        if self.bar.is_hidden() {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if *said != as_much_as {
                as_much_as.clone_into(&mut said);
                output::remark(message);
            }
        } else {
            self.bar.set_message(message);
        }
    }

    /// Prints without mixing with the line.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
