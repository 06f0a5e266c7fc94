DELETE FROM due WHERE execution_id = ?1 AND shard_id = ?2
