//! Randomness that repeats.

use harvest_runtime::{IdSource as _, SeededIds};
use std::time::Duration;

/// Numbers from a seed.
#[derive(Debug)]
pub struct Dice(SeededIds);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(SeededIds::new(seed))
    }

    /// 0 up to but not including `most`.
    pub fn below(&self, most: u64) -> u64 {
        self.0.random_u64() % most.max(1)
    }

    pub fn one_in(&self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// One of several.
    pub fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        let index = self.below(u64::try_from(of.len()).expect("a length fits"));
        &of[usize::try_from(index).expect("it is below a length")]
    }

    /// Up to so many milliseconds.
    pub fn millis(&self, most: u64) -> Duration {
        Duration::from_millis(self.below(most + 1))
    }
}

/// A seed of its own for each purpose.
pub fn mix(seed: u64, purpose: &str, number: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(purpose.as_bytes(), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number))
}
