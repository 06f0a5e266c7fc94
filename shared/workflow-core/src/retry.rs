//! Retry policies and the arithmetic of their delays.

use harvest_ids::{Attempt, DurationMs};

/// How often and how patiently something is tried again.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// All tries, the first one included. 1 = no retry.
    pub max_attempts: u32,
    /// The delay before the first retry.
    pub initial_interval: DurationMs,
    /// The factor from one delay to the next: finite and at least 1.
    pub backoff_coefficient: f64,
    /// The longest delay.
    pub max_interval: DurationMs,
    /// Error types that are not retried: exact text.
    pub non_retryable_errors: Vec<String>,
    /// How the delay is spread.
    pub jitter: Jitter,
}

impl Eq for RetryPolicy {} // the coefficient is never NaN: the wire crate refuses it

/// How a computed delay is spread, so that many retries do not arrive together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Jitter {
    /// The delay as computed.
    None,
    /// Uniform between 0 and the delay.
    #[default]
    Full,
    /// Uniform between half the delay and the delay.
    Equal,
    /// Uniform between the first delay and three times the delay before this one: it wanders up to the longest.
    Decorrelated,
}

/// The longest delay that anything computes: 365 days.
pub const LONGEST_DELAY: DurationMs = DurationMs::from_millis_const(365 * 24 * 3_600 * 1_000);

impl RetryPolicy {
    /// `attempts` tries, the delay doubling from `initial` up to 5 minutes.
    pub const fn exponential(attempts: u32, initial: DurationMs) -> Self {
        Self {
            max_attempts: attempts,
            initial_interval: initial,
            backoff_coefficient: 2.0,
            max_interval: DurationMs::from_millis_const(300_000),
            non_retryable_errors: Vec::new(),
            jitter: Jitter::Full,
        }
    }

    /// `attempts` tries, at most `delay` apart.
    pub const fn fixed(attempts: u32, delay: DurationMs) -> Self {
        Self {
            max_attempts: attempts,
            initial_interval: delay,
            backoff_coefficient: 1.0,
            max_interval: delay,
            non_retryable_errors: Vec::new(),
            jitter: Jitter::Full,
        }
    }

    /// The delay before the try after `failed`, in milliseconds, or `None` when `failed` was the last. `previous` is the delay before
    /// `failed`, if there was one; `random` spreads it: the same number gives the same delay. Never above [`LONGEST_DELAY`].
    pub fn next_delay(&self, failed: Attempt, previous: Option<u64>, random: u64) -> Option<u64> {
        if failed.0 >= self.max_attempts {
            return None;
        }
        let longest = self.max_interval.max(self.initial_interval).min(LONGEST_DELAY).as_millis();
        let initial = self.initial_interval.as_millis().min(longest);
        let exponent = i32::try_from(failed.0.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = initial as f64 * self.backoff_coefficient.powi(exponent);
        // `as` from f64 saturates, and an infinite product is above every cap.
        let base = if grown >= longest as f64 { longest } else { (grown as u64).max(1) };
        Some(match self.jitter {
            Jitter::None => base,
            Jitter::Full => between(0, base, random),
            Jitter::Equal => between(base / 2, base, random),
            Jitter::Decorrelated => between(initial, previous.unwrap_or(initial).saturating_mul(3).clamp(initial, longest), random),
        })
    }
}

/// Uniform between both, which are far below the largest number.
fn between(least: u64, most: u64, random: u64) -> u64 {
    least + random % (most - least + 1)
}

impl Default for RetryPolicy {
    /// Three attempts, exponential from 1 s, full jitter.
    fn default() -> Self {
        Self::exponential(3, DurationMs::from_millis_const(1_000))
    }
}
