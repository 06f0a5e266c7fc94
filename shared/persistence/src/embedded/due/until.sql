SELECT execution_id, due_at FROM due WHERE shard_id = ?1 AND due_at <= ?2 ORDER BY due_at LIMIT ?3
