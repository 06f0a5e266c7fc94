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
            let delay = policy.next_delay(Attempt(attempt), None, 0).unwrap();
            assert!(delay >= before && delay >= 1 && delay <= longest.max(initial), "{coefficient} {attempt}: {delay}");
            before = delay;
        }
    }
}

#[test]
fn a_cap_below_the_first_delay_is_the_first_delay() {
    assert_eq!(plain(10_000, 2.0, 1_000).next_delay(Attempt(3), None, 0), Some(10_000));
}

#[test]
fn the_last_attempt_has_no_next() {
    assert_eq!(RetryPolicy::fixed(3, ms(10)).next_delay(Attempt(2), None, 10), Some(10));
    assert_eq!(RetryPolicy::fixed(3, ms(10)).next_delay(Attempt(3), None, 9), None);
    assert_eq!(RetryPolicy::fixed(1, ms(10)).next_delay(Attempt(1), None, 9), None);
    assert_eq!(RetryPolicy::fixed(u32::MAX, ms(10)).next_delay(Attempt(u32::MAX), None, 9), None);
}

#[test]
fn a_coefficient_that_nobody_may_set_still_gives_a_sane_delay() {
    for coefficient in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0] {
        for attempt in 1..100 {
            let delay = plain(1_000, coefficient, 60_000).next_delay(Attempt(attempt), None, 0).unwrap();
            assert!((1..=60_000).contains(&delay), "{coefficient} {attempt}: {delay}");
        }
    }
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    let span = || (1..=DurationMs::MAX.as_millis()).prop_map(ms);
    let jitter = prop_oneof![Just(Jitter::None), Just(Jitter::Full), Just(Jitter::Equal), Just(Jitter::Decorrelated)];
    // Every float there is, and often one that policies have.
    let coefficient = prop_oneof![any::<f64>(), 1.0..10.0f64];
    (any::<u32>(), span(), coefficient, span(), jitter).prop_map(|(max_attempts, initial_interval, backoff_coefficient, max_interval, jitter)| RetryPolicy {
        max_attempts,
        initial_interval,
        backoff_coefficient,
        max_interval,
        non_retryable_errors: Vec::new(),
        jitter,
    })
}

/// The same, slow and plain: one multiplication a retry, stopped where it cannot grow any more.
fn model(policy: &RetryPolicy, failed: u32, previous: Option<u64>) -> Option<(u64, u64)> {
    const YEAR: u64 = 365 * 86_400_000;
    if failed >= policy.max_attempts {
        return None;
    }
    let (initial, longest) = (policy.initial_interval.as_millis(), policy.max_interval.as_millis());
    let longest = if longest < initial { initial } else { longest };
    let longest = if longest > YEAR { YEAR } else { longest };
    let initial = if initial > longest { longest } else { initial };
    if !(policy.backoff_coefficient.is_finite() && policy.backoff_coefficient >= 1.0) {
        return Some((0, longest)); // nobody may set it: anything sane will do
    }
    let mut delay = initial as f64;
    for _ in 1..failed {
        delay *= policy.backoff_coefficient;
        if delay >= longest as f64 || policy.backoff_coefficient == 1.0 {
            break;
        }
    }
    let base = if delay >= longest as f64 { longest } else { delay as u64 };
    Some(match policy.jitter {
        Jitter::None => (base, base),
        Jitter::Full => (0, base),
        Jitter::Equal => (base / 2, base),
        Jitter::Decorrelated => {
            let tripled = u128::from(previous.unwrap_or(initial)) * 3;
            (initial, u64::try_from(tripled.min(u128::from(longest)).max(u128::from(initial))).unwrap())
        }
    })
}

proptest! {
    #[test]
    fn every_policy_gives_what_the_plain_model_gives(
        policy in any_policy(), failed in prop_oneof![1u32..200, any::<u32>()], previous: Option<u64>, random: u64,
    ) {
        let failed = failed.max(1);
        let delay = policy.next_delay(Attempt(failed), previous, random);
        // Beyond a few thousand steps a sane coefficient has long reached the cap; the model would only take its time.
        let expected = model(&policy, if policy.max_attempts > failed { failed.min(5_000) } else { failed }, previous);
        prop_assert_eq!(delay.is_some(), expected.is_some());
        if let (Some(delay), Some((least, most))) = (delay, expected) {
            // Repeated multiplication and a power round differently: a part in ten thousand millions is allowed for.
            let slack = most / 10_000_000_000 + 1;
            prop_assert!(delay.saturating_add(slack) >= least && delay <= most.saturating_add(slack), "{} not in {}..={}", delay, least, most);
            prop_assert!(delay <= 365 * 86_400_000);
        }
    }

    #[test]
    fn jitter_stays_in_its_band_and_follows_from_its_number(initial in 1u64..=315_360_000_000, attempt in 1u32..5_000, random: u64) {
        let base = plain(initial, 2.0, 315_360_000_000).next_delay(Attempt(attempt), None, random).unwrap();
        let full = RetryPolicy { jitter: Jitter::Full, ..plain(initial, 2.0, 315_360_000_000) };
        let equal = RetryPolicy { jitter: Jitter::Equal, ..full.clone() };
        prop_assert!(full.next_delay(Attempt(attempt), None, random).unwrap() <= base);
        prop_assert!((base / 2..=base).contains(&equal.next_delay(Attempt(attempt), None, random).unwrap()));
        prop_assert_eq!(full.next_delay(Attempt(attempt), None, random), full.next_delay(Attempt(attempt), None, random));
    }
}
