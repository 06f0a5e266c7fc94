SELECT shard_id, execution_id, due_at
FROM harvest.due
WHERE shard_id = ANY ($1) AND due_at <= $2
ORDER BY due_at
LIMIT $3
