//! Deadlines of calls: read from the caller's `grpc-timeout`, passed on with every call that is made for it.
#![expect(clippy::disallowed_methods, reason = "deadlines and pauses of calls are counted on the runtime's own clock, which tests can stop")]

use std::time::Duration;
use tokio::time::Instant;
use tonic::Request;
use tonic::metadata::MetadataMap;

/// The header that carries a gRPC deadline.
const GRPC_TIMEOUT: &str = "grpc-timeout";
/// The longest time that the header can say: 8 digits of hours.
const LONGEST: Duration = Duration::from_secs(99_999_999 * 3_600);

/// When the caller of a request stops waiting: its own deadline, else `default` from now; never beyond `longest`.
pub fn of(metadata: &MetadataMap, default: Duration, longest: Duration) -> Instant {
    let asked = metadata.get(GRPC_TIMEOUT).and_then(|value| value.to_str().ok()).and_then(parse);
    Instant::now() + asked.unwrap_or(default).min(longest)
}

/// A request that tells the server when the caller stops waiting; a deadline too far away to be said is one of 11 000 years.
pub fn request<T>(message: T, deadline: Instant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline.saturating_duration_since(Instant::now()).min(LONGEST));
    request
}

/// Reads a `grpc-timeout` value: up to 8 digits and a unit.
fn parse(value: &str) -> Option<Duration> {
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count.saturating_mul(3_600)),
        "M" => Duration::from_secs(count.saturating_mul(60)),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_timeout_is_read_and_nonsense_is_ignored() {
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("2S"), Some(Duration::from_secs(2)));
        for nonsense in ["", "S", "1", "123456789S", "-1S", "1x", "é"] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_deadline_too_far_away_for_the_header_does_not_panic() {
        for far in [Duration::from_secs(1), LONGEST, Duration::from_secs(584_542_046 * 31_557_600)] {
            let request = request((), Instant::now().checked_add(far).unwrap());
            let said = parse(request.metadata().get(GRPC_TIMEOUT).unwrap().to_str().unwrap()).unwrap();
            assert!(said <= far && said <= LONGEST, "{far:?}: {said:?}");
        }
    }
}
