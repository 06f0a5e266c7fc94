SELECT sequence, target, message FROM outbox WHERE shard_id = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3
