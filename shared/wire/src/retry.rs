//! Retry policies.

use crate::error::{WireError, wide};
use crate::field;
use harvest_ids::DurationMs;
use harvest_proto::v1;
use harvest_workflow_core::retry::{Jitter, RetryPolicy};

/// The longest interval between tries: 365 days.
pub const MAX_INTERVAL_MS: u64 = 365 * 24 * 3_600 * 1_000;
const ALLOWED_INTERVAL: &str = "1 ms to 365 days (31536000000 ms)";
/// Most error types that are not retried.
pub const MAX_NON_RETRYABLE: usize = 100;

/// To the wire.
pub fn to_proto(policy: &RetryPolicy) -> v1::RetryPolicy {
    let jitter = match policy.jitter {
        Jitter::None => v1::Jitter::None,
        Jitter::Full => v1::Jitter::Full,
        Jitter::Equal => v1::Jitter::Equal,
        Jitter::Decorrelated => v1::Jitter::Decorrelated,
    };
    v1::RetryPolicy {
        max_attempts: policy.max_attempts,
        initial_interval_ms: policy.initial_interval.as_millis(),
        backoff_coefficient: policy.backoff_coefficient,
        max_interval_ms: policy.max_interval.as_millis(),
        non_retryable_errors: policy.non_retryable_errors.clone(),
        jitter: jitter.into(),
    }
}

/// From the wire. Coefficient 0 means 2, a longest interval of 0 means 5 minutes, unspecified jitter means full.
///
/// # Errors
/// [`WireError`] for 0 attempts, an interval of 0 or beyond 365 days, a coefficient that is not finite or below 1, unknown jitter, too many
/// or too long error types.
pub fn from_proto(policy: v1::RetryPolicy) -> Result<RetryPolicy, WireError> {
    if policy.max_attempts == 0 {
        return Err(WireError::Range { field: "max_attempts".into(), found: "0".into(), allowed: "1 to 4294967295 (1 = no retry)" });
    }
    let coefficient = if policy.backoff_coefficient == 0.0 { 2.0 } else { policy.backoff_coefficient };
    if !coefficient.is_finite() || coefficient < 1.0 {
        let found = coefficient.to_string();
        return Err(WireError::Range { field: "backoff_coefficient".into(), found, allowed: "finite numbers of at least 1" });
    }
    let jitter = match v1::Jitter::try_from(policy.jitter) {
        Ok(v1::Jitter::Unspecified | v1::Jitter::Full) => Jitter::Full,
        Ok(v1::Jitter::None) => Jitter::None,
        Ok(v1::Jitter::Equal) => Jitter::Equal,
        Ok(v1::Jitter::Decorrelated) => Jitter::Decorrelated,
        Err(unknown) => return Err(field::unknown_word("jitter", &unknown.to_string(), "JITTER_NONE, JITTER_FULL, JITTER_EQUAL, JITTER_DECORRELATED")),
    };
    if policy.non_retryable_errors.len() > MAX_NON_RETRYABLE {
        let found = wide(policy.non_retryable_errors.len());
        return Err(WireError::TooLarge { field: "non_retryable_errors".into(), found, allowed: wide(MAX_NON_RETRYABLE), unit: "error types" });
    }
    let mut non_retryable_errors = Vec::with_capacity(policy.non_retryable_errors.len());
    for error_type in policy.non_retryable_errors {
        non_retryable_errors.push(field::text("non_retryable_errors", error_type, 255)?);
    }
    let max_interval = if policy.max_interval_ms == 0 { 300_000 } else { policy.max_interval_ms };
    Ok(RetryPolicy {
        max_attempts: policy.max_attempts,
        initial_interval: interval("initial_interval_ms", policy.initial_interval_ms)?,
        backoff_coefficient: coefficient,
        max_interval: interval("max_interval_ms", max_interval)?,
        non_retryable_errors,
        jitter,
    })
}

fn interval(field: &str, millis: u64) -> Result<DurationMs, WireError> {
    if millis == 0 || millis > MAX_INTERVAL_MS {
        return Err(WireError::Range { field: field.to_owned(), found: format!("{millis} ms"), allowed: ALLOWED_INTERVAL });
    }
    field::span(field, millis)
}
