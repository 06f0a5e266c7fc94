//! The request ids that a chain remembers, so that a repeated call repeats its answer and not its effect.

use harvest_ids::{RequestId, Timestamp};
use std::collections::{BTreeSet, VecDeque};

/// Request ids in the order they were seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestMemory {
    known: BTreeSet<RequestId>,
    order: VecDeque<(RequestId, Timestamp)>,
    text_bytes: usize,
}

impl RequestMemory {
    /// Whether `id` is remembered.
    pub fn contains(&self, id: &RequestId) -> bool {
        self.known.contains(id)
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// All of them with when they were seen, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &(RequestId, Timestamp)> {
        self.order.iter()
    }

    /// Bytes of all ids.
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    pub(crate) fn remember(&mut self, id: &RequestId, at: Timestamp) {
        if self.known.insert(id.clone()) {
            self.text_bytes += id.as_str().len();
            self.order.push_back((id.clone(), at));
        }
    }

    pub(crate) fn forget_oldest(&mut self, count: u32) {
        for _ in 0..count {
            let Some((id, _)) = self.order.pop_front() else { return };
            self.known.remove(&id);
            self.text_bytes -= id.as_str().len();
        }
    }
}
