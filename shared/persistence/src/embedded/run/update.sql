UPDATE run
SET status = ?3, closed_at = ?4, last_event = ?5, continued_as = ?6, blocked_at = ?7, blocked_reason = ?8
WHERE execution_id = ?1 AND shard_id = ?2
