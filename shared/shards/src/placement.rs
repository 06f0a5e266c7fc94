//! Keys of rendezvous placement: every process must hash the same words to find the same neighbour.

use harvest_ids::{Namespace, ShardId, TaskQueue};

/// The key under which a task queue is placed on a matching process. The last part is its partition: one, by default.
pub fn task_queue(namespace: &Namespace, queue: &TaskQueue) -> String {
    format!("queue/{namespace}/{queue}/0")
}

/// The key under which a shard is placed on a timer scanner.
pub fn shard(shard_id: ShardId) -> String {
    format!("shard/{shard_id}")
}
