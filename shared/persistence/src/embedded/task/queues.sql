SELECT DISTINCT namespace, queue, kind FROM task WHERE shard_id = ?1 ORDER BY namespace, queue, kind
