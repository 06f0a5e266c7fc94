INSERT INTO outbox (shard_id, sequence, target, message) VALUES (?1, ?2, ?3, ?4)
