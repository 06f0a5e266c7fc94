SELECT task_id, sequence
FROM task
WHERE shard_id = ?1 AND namespace = ?2 AND queue = ?3 AND kind = ?4 AND sequence > ?5
ORDER BY sequence
LIMIT ?6
