//! Counters and small numbers with a meaning.

use std::fmt;

macro_rules! number_newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// How many slots runs are hashed into. Fixed for the life of a fleet: execution ids carry their slot.
pub const SLOT_COUNT: u16 = 4096;

number_newtype!(
    /// A set of slots in one Postgres partition: the unit of ownership.
    ShardId(u32));
number_newtype!(
    /// The number that fences a shard's owner: every takeover raises it.
    Epoch(u64));
number_newtype!(
    /// The number of an event in its run's history: dense from 1. 0 stands for "before the first".
    EventId(u64));
number_newtype!(
    /// One try of an activity or of a workflow task, counted from 1.
    Attempt(u32));

impl EventId {
    /// The id of the next event.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Epoch {
    /// The epoch after a takeover.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Attempt {
    /// The first attempt.
    pub const FIRST: Self = Self(1);

    /// The attempt after this one; stays at the largest number rather than wrapping.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// An activity of a run: the id of the event that scheduled it.
pub type ActivityId = EventId;

/// One of [`SLOT_COUNT`] hash buckets of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Slot(u16);

/// A slot number of [`SLOT_COUNT`] or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("slot {0} is out of range; slots are 0 to 4095")]
pub struct SlotError(pub u16);

impl Slot {
    /// Checks and wraps a slot number.
    ///
    /// # Errors
    /// [`SlotError`] at [`SLOT_COUNT`] or above.
    pub fn new(number: u16) -> Result<Self, SlotError> {
        if number < SLOT_COUNT { Ok(Self(number)) } else { Err(SlotError(number)) }
    }

    /// The slot of a workflow: XXH3-64 of `namespace NUL workflow_id`, modulo [`SLOT_COUNT`]. The type is not in it, so that a chain
    /// may change its type in place. This formula is part of the stored format: it never changes.
    pub fn of(namespace: &crate::Namespace, workflow_id: &crate::WorkflowId) -> Self {
        let mut key = Vec::with_capacity(namespace.as_str().len() + 1 + workflow_id.as_str().len());
        key.extend_from_slice(namespace.as_str().as_bytes());
        key.push(0);
        key.extend_from_slice(workflow_id.as_str().as_bytes());
        let hash = xxhash_rust::xxh3::xxh3_64(&key);
        Self(u16::try_from(hash % u64::from(SLOT_COUNT)).expect("a remainder of 4096 fits 16 bits"))
    }

    /// The number, 0 to 4095.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Namespace, WorkflowId};

    #[test]
    fn the_slot_of_a_workflow_never_changes() {
        let slot = |id: &str| Slot::of(&Namespace::default(), &WorkflowId::new(id).unwrap()).number();
        assert_eq!(["order-1", "order-2", "a"].map(slot), [2166, 3543, 3506]);
        assert_eq!(Slot::new(4096), Err(SlotError(4096)));
    }
}
