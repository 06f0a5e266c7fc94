UPDATE run
SET status = ?3, closed_at = ?4, last_event = ?5, continued_as = ?6, blocked_at = ?7, blocked_reason = ?8, paused_at = ?9,
    sla_deadline_at = ?10, sla_breached_at = ?11
WHERE execution_id = ?1 AND shard_id = ?2
