//! The arithmetic of delays.

use crate::support::ms;
use harvest_ids::{Attempt, DurationMs};
use harvest_workflow_core::retry::{Jitter, RetryPolicy};
use proptest::prelude::*;

fn plain(initial: u64, coefficient: f64, longest: u64) -> RetryPolicy {
    RetryPolicy { backoff_coefficient: coefficient, max_interval: ms(longest), jitter: Jitter::None, ..RetryPolicy::exponential(u32::MAX, ms(initial)) }
}

#[test]
fn delays_grow_to_their_cap_and_never_wrap() {
    for (initial, coefficient, longest) in [(1_000, 2.0, DurationMs::MAX.as_millis()), (1, f64::MAX, 5), (1, 1.0, 1), (10, 1e308, 365 * 86_400_000)] {
        let policy = plain(initial, coefficient, longest);
        let mut before = 0;
        for attempt in (1..2_000).chain([u32::MAX - 1]) {
            let delay = policy.next_delay(Attempt(attempt), 0).unwrap();
            assert!(delay >= before && delay >= 1 && delay <= longest.max(initial), "{coefficient} {attempt}: {delay}");
            before = delay;
        }
    }
}

#[test]
fn a_cap_below_the_first_delay_is_the_first_delay() {
    assert_eq!(plain(10_000, 2.0, 1_000).next_delay(Attempt(3), 0), Some(10_000));
}

#[test]
fn the_last_attempt_has_no_next() {
    assert_eq!(RetryPolicy::fixed(3, ms(10)).next_delay(Attempt(2), 9), Some(10));
    assert_eq!(RetryPolicy::fixed(3, ms(10)).next_delay(Attempt(3), 9), None);
    assert_eq!(RetryPolicy::fixed(1, ms(10)).next_delay(Attempt(1), 9), None);
    assert_eq!(RetryPolicy::fixed(u32::MAX, ms(10)).next_delay(Attempt(u32::MAX), 9), None);
}

#[test]
fn a_coefficient_that_nobody_may_set_still_gives_a_sane_delay() {
    for coefficient in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0] {
        for attempt in 1..100 {
            let delay = plain(1_000, coefficient, 60_000).next_delay(Attempt(attempt), 0).unwrap();
            assert!((1..=60_000).contains(&delay), "{coefficient} {attempt}: {delay}");
        }
    }
}

proptest! {
    #[test]
    fn jitter_stays_in_its_band_and_follows_from_its_number(initial in 1u64..=315_360_000_000, attempt in 1u32..5_000, random: u64) {
        let base = plain(initial, 2.0, 315_360_000_000).next_delay(Attempt(attempt), random).unwrap();
        let full = RetryPolicy { jitter: Jitter::Full, ..plain(initial, 2.0, 315_360_000_000) };
        let equal = RetryPolicy { jitter: Jitter::Equal, ..full.clone() };
        prop_assert!(full.next_delay(Attempt(attempt), random).unwrap() <= base);
        prop_assert!((base / 2..=base).contains(&equal.next_delay(Attempt(attempt), random).unwrap()));
        prop_assert_eq!(full.next_delay(Attempt(attempt), random), full.next_delay(Attempt(attempt), random));
    }
}
