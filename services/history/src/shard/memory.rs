//! The memory that runs of all shards of a process may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bound in bytes, shared by the shards of a process: a shard drops runs when all together are over it and the shard itself is over
/// an equal part. So one shard uses what others leave, and none drops runs because another is large.
#[derive(Debug)]
pub struct Memory {
    limit: u64,
    used: AtomicU64,
    shards: AtomicU64,
}

impl Memory {
    /// Room for `limit` bytes of runs.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0), shards: AtomicU64::new(0) })
    }

    /// Bytes that runs of all shards take now, by estimate.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// What one shard takes of it; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Share {
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        memory.shards.fetch_add(1, Ordering::Relaxed);
        Self { memory, bytes: 0 }
    }

    /// Bytes of this shard.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Something of `before` bytes has `after` bytes now.
    pub(crate) fn changed(&mut self, before: u64, after: u64) {
        if after >= before {
            self.bytes += after - before;
            self.memory.used.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.bytes -= before - after;
            self.memory.used.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Whether this shard has to drop something.
    pub(crate) fn is_over(&self) -> bool {
        let shards = self.memory.shards.load(Ordering::Relaxed).max(1);
        self.memory.used() > self.memory.limit && self.bytes > self.memory.limit / shards
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.memory.shards.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_uses_what_others_leave_and_drops_only_what_is_over_its_part() {
        let memory = Memory::new(1_000);
        let (mut large, mut small) = (Share::new(memory.clone()), Share::new(memory.clone()));
        large.changed(0, 900);
        assert!(!large.is_over(), "the other leaves room");
        small.changed(0, 300);
        assert!(large.is_over() && !small.is_over());
        large.changed(900, 700);
        assert!(!large.is_over());
        small.changed(300, 600);
        assert!(large.is_over() && small.is_over(), "both have more than half");
        drop(large);
        assert_eq!(memory.used(), 600);
        assert!(!small.is_over());
    }
}
