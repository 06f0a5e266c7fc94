//! Retry policies as authors write them.

use crate::error::HarvestError;
use harvest_ids::DurationMs;
use harvest_workflow_core::retry;
use std::time::Duration;

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
    /// Uniform between the first delay and three times the delay before this one, at most the longest.
    Decorrelated,
}

/// How often and how patiently an activity is tried again.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// All tries, the first one included; at least 1.
    pub max_attempts: u32,
    /// The delay before the first retry: 1 ms to 365 days.
    pub initial_interval: Duration,
    /// The factor from one delay to the next: finite and at least 1.
    pub backoff_coefficient: f64,
    /// The longest delay.
    pub max_interval: Duration,
    /// Error types that are not retried: exact text.
    pub non_retryable_errors: Vec<String>,
    /// How the delay is spread.
    pub jitter: Jitter,
}

/// The longest delay that a policy may ask for.
const LONGEST_INTERVAL: Duration = Duration::from_secs(365 * 24 * 3_600);

impl RetryPolicy {
    /// `attempts` tries, the delay not growing: uniform up to `delay` (full jitter), always `delay` with [`Jitter::None`].
    pub fn fixed(attempts: u32, delay: Duration) -> Self {
        Self {
            max_attempts: attempts,
            initial_interval: delay,
            backoff_coefficient: 1.0,
            max_interval: delay,
            non_retryable_errors: Vec::new(),
            jitter: Jitter::Full,
        }
    }

    /// `attempts` tries, the delay doubling from `initial` up to 5 minutes, with full jitter.
    pub fn exponential(attempts: u32, initial: Duration) -> Self {
        let max_interval = Duration::from_secs(300).max(initial);
        Self {
            max_attempts: attempts,
            initial_interval: initial,
            backoff_coefficient: 2.0,
            max_interval,
            non_retryable_errors: Vec::new(),
            jitter: Jitter::Full,
        }
    }

    /// One try.
    pub fn none() -> Self {
        Self::fixed(1, Duration::from_secs(1))
    }

    /// Sets the longest delay.
    #[must_use]
    pub fn with_max_interval(mut self, longest: Duration) -> Self {
        self.max_interval = longest;
        self
    }

    /// Sets the factor between delays.
    #[must_use]
    pub fn with_backoff_coefficient(mut self, factor: f64) -> Self {
        self.backoff_coefficient = factor;
        self
    }

    /// Sets the error types that are not retried.
    #[must_use]
    pub fn with_non_retryable_errors<S: Into<String>>(mut self, types: impl IntoIterator<Item = S>) -> Self {
        self.non_retryable_errors = types.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the jitter.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    pub(crate) fn to_core(&self) -> Result<retry::RetryPolicy, HarvestError> {
        if self.max_attempts == 0 {
            return Err(HarvestError::invalid("retry.max_attempts", "is 0; at least 1 is allowed (1 = no retry)"));
        }
        if !self.backoff_coefficient.is_finite() || self.backoff_coefficient < 1.0 {
            return Err(HarvestError::invalid("retry.backoff_coefficient", format!("is {}; finite numbers from 1 are allowed", self.backoff_coefficient)));
        }
        let interval = |field: &str, value: Duration| {
            if value > LONGEST_INTERVAL {
                return Err(HarvestError::invalid(field, format!("is {value:?}; at most 365 days are allowed")));
            }
            DurationMs::from_duration(field, value).map_err(|error| HarvestError::invalid(field, error))
        };
        Ok(retry::RetryPolicy {
            max_attempts: self.max_attempts,
            initial_interval: interval("retry.initial_interval", self.initial_interval)?,
            backoff_coefficient: self.backoff_coefficient,
            max_interval: interval("retry.max_interval", self.max_interval.max(self.initial_interval))?,
            non_retryable_errors: self.non_retryable_errors.clone(),
            jitter: match self.jitter {
                Jitter::None => retry::Jitter::None,
                Jitter::Full => retry::Jitter::Full,
                Jitter::Equal => retry::Jitter::Equal,
                Jitter::Decorrelated => retry::Jitter::Decorrelated,
            },
        })
    }
}

impl Default for RetryPolicy {
    /// Three attempts, exponential from 1 s, full jitter: what an activity has that declares nothing.
    fn default() -> Self {
        Self::exponential(3, Duration::from_secs(1))
    }
}
