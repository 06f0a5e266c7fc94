SELECT task_id, sequence
FROM shard_0.task
WHERE namespace = $1 AND queue = $2 AND kind = $3 AND sequence > $4
ORDER BY sequence
LIMIT $5
