UPDATE due SET due_at = ?3 WHERE execution_id = ?1 AND shard_id = ?2
