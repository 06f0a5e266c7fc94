INSERT INTO due (execution_id, shard_id, due_at) VALUES (?1, ?2, ?3)
