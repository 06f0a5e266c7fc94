//! The first slot map of a fleet.

use harvest_ids::SLOT_COUNT;

/// Slots `first` to `last`, both included, belong to `shard`. Numbers as the databases hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) shard: i32,
    pub(crate) first: i32,
    pub(crate) last: i32,
}

/// All slots over `shards` shards (1 to 4 096), as evenly as they go.
pub(crate) fn even_ranges(shards: u32) -> Vec<SlotRange> {
    let slots = i32::from(SLOT_COUNT.cast_signed());
    let shards = i32::try_from(shards).unwrap_or(slots).clamp(1, slots);
    (0..shards).map(|shard| SlotRange { shard, first: shard * slots / shards, last: (shard + 1) * slots / shards - 1 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_one_shard_and_shards_differ_by_one_slot_at_most() {
        for shards in [1, 3, 4, 16, 1000, 4096] {
            let ranges = even_ranges(shards);
            assert_eq!(ranges.len(), usize::try_from(shards).unwrap());
            assert_eq!((ranges[0].first, ranges.last().unwrap().last), (0, 4095));
            assert!(ranges.windows(2).all(|pair| pair[0].last + 1 == pair[1].first));
            let sizes: Vec<_> = ranges.iter().map(|range| range.last - range.first + 1).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        }
    }
}
