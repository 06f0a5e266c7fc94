SELECT sequence, target, message FROM shard_0.outbox WHERE sequence > $1 ORDER BY sequence LIMIT $2
