DELETE FROM outbox WHERE shard_id = ?1 AND sequence = ?2
