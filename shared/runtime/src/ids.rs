//! Randomness as a parameter.

use harvest_ids::WorkerId;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// A source of random numbers and of new names.
pub trait IdSource: Send + Sync + 'static {
    /// 64 random bits.
    fn random_u64(&self) -> u64;

    /// 128 random bits.
    fn random_u128(&self) -> u128 {
        (u128::from(self.random_u64()) << 64) | u128::from(self.random_u64())
    }

    /// A name for this start of a process, as used in the membership.
    fn process_id(&self) -> String {
        Uuid::from_u128(self.random_u128()).simple().to_string()
    }

    /// The name of a new worker session.
    fn worker_id(&self) -> WorkerId {
        WorkerId::new(Uuid::from_u128(self.random_u128()).simple().to_string()).expect("32 hexadecimal digits are a name")
    }
}

/// The machine's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    #[allow(clippy::disallowed_methods)] // the one place that reads the machine's randomness
    fn random_u64(&self) -> u64 {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        // A version 4 UUID has fixed bits (version, variant) in each half, so that neither half alone is uniform.
        high.rotate_left(32) ^ low
    }
}

/// Numbers that repeat from a seed, for tests.
#[derive(Debug)]
pub struct SeededIds {
    state: AtomicU64,
}

impl SeededIds {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }
}

impl IdSource for SeededIds {
    fn random_u64(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15; // SplitMix64
        let mut z = self.state.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_ids_repeat_and_system_ids_do_not() {
        let draw = |seed| (0..4).map(|_| SeededIds::new(seed).random_u64()).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(SystemIds.process_id(), SystemIds.process_id());
        assert_ne!(SystemIds.worker_id(), SystemIds.worker_id());
    }

    #[test]
    fn every_bit_of_a_system_number_varies() {
        let (mut ones, mut zeros) = (0u64, 0u64);
        for _ in 0..200 {
            let number = SystemIds.random_u64();
            ones |= number;
            zeros |= !number;
        }
        assert_eq!((ones, zeros), (u64::MAX, u64::MAX));
    }
}
