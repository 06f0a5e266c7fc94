//! The id of one run.

use crate::{Slot, numbers::SLOT_COUNT, time::Timestamp};
use std::fmt;
use uuid::Uuid;

/// The id of one run: a UUID version 8 whose first 16 bits are the run's slot and whose rest is time and randomness, so that an id
/// alone is routable and slots can move between shards without changing ids.
///
/// Layout: 16 bits slot, 32 + 12 bits milliseconds since the Unix epoch (around the version nibble), 62 bits random (after the variant).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId(Uuid);

/// Why a text or UUID is not an execution id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecutionIdError {
    /// Not a UUID at all.
    #[error("execution_id {0:?} is not a UUID")]
    NotUuid(String),
    /// A UUID whose first 16 bits are no slot.
    #[error("execution_id {id} names slot {slot}; slots are 0 to {}", SLOT_COUNT - 1)]
    Slot {
        /// The refused id.
        id: Uuid,
        /// The slot it names.
        slot: u16,
    },
    /// A UUID of another version than 8.
    #[error("execution_id {0} is not a version 8 UUID, as every execution id is")]
    Version(Uuid),
}

impl ExecutionId {
    /// Makes the id of a new run from its slot, the time and 64 random bits (62 are used).
    pub fn new(slot: Slot, now: Timestamp, random: u64) -> Self {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0) & 0xfff_ffff_ffff;
        let mut bytes = [0u8; 16];
        bytes[0..2].copy_from_slice(&slot.number().to_be_bytes());
        let time = millis.to_be_bytes(); // 44 significant bits: the low 5.5 bytes
        let high = u32::try_from(millis >> 12).expect("44 bits less 12 fit 32");
        bytes[2..6].copy_from_slice(&high.to_be_bytes());
        bytes[6] = 0x80 | (time[6] & 0x0f);
        bytes[7] = time[7];
        bytes[8..16].copy_from_slice(&random.to_be_bytes());
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        Self(Uuid::from_bytes(bytes))
    }

    /// Checks a UUID.
    ///
    /// # Errors
    /// [`ExecutionIdError`] when its version is not 8 or its slot is out of range.
    pub fn from_uuid(id: Uuid) -> Result<Self, ExecutionIdError> {
        let slot = u16::from_be_bytes([id.as_bytes()[0], id.as_bytes()[1]]);
        if slot >= SLOT_COUNT {
            return Err(ExecutionIdError::Slot { id, slot });
        }
        if id.get_version_num() != 8 {
            return Err(ExecutionIdError::Version(id));
        }
        Ok(Self(id))
    }

    /// The UUID.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }

    /// The slot that the id carries.
    pub fn slot(&self) -> Slot {
        let bytes = self.0.as_bytes();
        Slot::new(u16::from_be_bytes([bytes[0], bytes[1]])).expect("checked on construction")
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for ExecutionId {
    type Err = ExecutionIdError;
    fn from_str(text: &str) -> Result<Self, ExecutionIdError> {
        let id = Uuid::try_parse(text).map_err(|_| ExecutionIdError::NotUuid(text.chars().take(64).collect()))?;
        Self::from_uuid(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_carries_its_slot_and_reads_back() {
        for number in [0, 1, 4095] {
            let id = ExecutionId::new(Slot::new(number).unwrap(), Timestamp::from_millis(1_796_000_000_123), u64::MAX);
            assert_eq!(id.slot().number(), number);
            assert_eq!(id.to_string().parse::<ExecutionId>().unwrap(), id);
        }
    }

    #[test]
    fn a_slot_above_4095_another_version_and_garbage_are_refused() {
        assert!(matches!("ffff0000-0000-8000-8000-000000000000".parse::<ExecutionId>(), Err(ExecutionIdError::Slot { slot: 0xffff, .. })));
        assert!(matches!("00010000-0000-4000-8000-000000000000".parse::<ExecutionId>(), Err(ExecutionIdError::Version(_))));
        assert!(matches!("x".parse::<ExecutionId>(), Err(ExecutionIdError::NotUuid(_))));
    }
}
