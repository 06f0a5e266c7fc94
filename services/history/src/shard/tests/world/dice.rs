//! Randomness that repeats.

use harvest_runtime::{IdSource, SeededIds};

/// Numbers from a seed.
#[derive(Debug)]
pub(super) struct Dice(SeededIds);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(SeededIds::new(seed))
    }

    /// 0 up to but not including `most`.
    pub(super) fn below(&self, most: u64) -> u64 {
        self.0.random_u64() % most.max(1)
    }

    pub(super) fn one_in(&self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// One of several.
    pub(super) fn index(&self, of: usize) -> usize {
        usize::try_from(self.below(u64::try_from(of).unwrap())).unwrap()
    }
}
