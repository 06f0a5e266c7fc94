SELECT
    coalesce((SELECT max(sequence) FROM task WHERE shard_id = ?1), 0),
    coalesce((SELECT max(sequence) FROM outbox WHERE shard_id = ?1), 0)
