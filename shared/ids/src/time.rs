//! Instants and spans, in whole milliseconds. The core never reads a clock: these are values handed to it.

use std::fmt;
use std::time::Duration;

/// An instant: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant plus a span; stays at the last representable instant rather than wrapping.
    #[must_use]
    pub const fn plus(self, span: DurationMs) -> Self {
        Self(self.0.saturating_add(span.0 as i64)) // at most 10 years: always fits
    }

    /// The instant so many milliseconds later; the last one there is rather than beyond it.
    pub fn plus_millis(self, millis: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX)))
    }

    /// As people and JSON have it: `2026-11-30T15:14:00.123Z`.
    pub fn rfc3339(self) -> String {
        let (seconds, millis) = (self.0.div_euclid(1_000), self.0.rem_euclid(1_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Howard Hinnant's civil_from_days: eras of 400 years that begin on a 1 March.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }

    /// The time from `earlier` to this instant; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// A span a user may ask for: 1 ms to 10 years, so that adding it to a clock never overflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct DurationMs(u64);

/// Why a span was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}; allowed are 1 ms to 10 years (315360000000 ms)")]
pub struct DurationError {
    /// The field's name as the caller wrote it.
    pub field: String,
    /// What was found, with its unit.
    pub found: String,
}

impl DurationMs {
    /// The longest span: 10 years of 365 days.
    pub const MAX: Self = Self(315_360_000_000);

    /// Checks a span in milliseconds.
    ///
    /// # Errors
    /// [`DurationError`] naming `field` when it is 0 or beyond 10 years.
    pub fn new(field: impl Into<String>, millis: u64) -> Result<Self, DurationError> {
        if millis == 0 || millis > Self::MAX.0 {
            return Err(DurationError { field: field.into(), found: format!("{millis} ms") });
        }
        Ok(Self(millis))
    }

    /// A span known to be valid when the program is written.
    ///
    /// # Panics
    /// When it is 0 or beyond 10 years: at compile time in a `const`.
    pub const fn from_millis_const(millis: u64) -> Self {
        assert!(millis > 0 && millis <= Self::MAX.0, "a span is 1 ms to 10 years");
        Self(millis)
    }

    /// Checks a `Duration`, rounding a fraction of a millisecond up.
    ///
    /// # Errors
    /// [`DurationError`] naming `field` when it is 0 or beyond 10 years.
    pub fn from_duration(field: impl Into<String>, duration: Duration) -> Result<Self, DurationError> {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        match u64::try_from(millis) {
            Ok(millis) if (1..=Self::MAX.0).contains(&millis) => Ok(Self(millis)),
            _ => Err(DurationError { field: field.into(), found: format!("{duration:?}") }),
        }
    }

    /// Milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// As a `Duration`.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Display for DurationMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_reads_as_rfc_3339() {
        let text = |millis| Timestamp::from_millis(millis).rfc3339();
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(text(951_827_696_789), "2000-02-29T12:34:56.789Z");
        assert_eq!(text(1_796_051_640_123), "2026-11-30T15:14:00.123Z");
    }

    #[test]
    fn a_span_outside_1_ms_to_10_years_is_refused_with_its_field() {
        assert!(DurationMs::new("sla", 0).unwrap_err().to_string().starts_with("sla is 0 ms; allowed are 1 ms to 10 years"));
        assert!(DurationMs::new("sla", u64::MAX).is_err());
        assert!(DurationMs::from_duration("sla", Duration::MAX).is_err());
        assert_eq!(DurationMs::from_duration("sla", Duration::from_nanos(1)).unwrap().as_millis(), 1);
        assert_eq!(Timestamp::from_millis(i64::MAX).plus(DurationMs::MAX).as_millis(), i64::MAX);
        assert_eq!(Timestamp::from_millis(1).since(Timestamp::from_millis(5)), Duration::ZERO);
    }
}
