SELECT execution_id, namespace, workflow_type, workflow_id, first_execution_id, parent_execution_id, task_queue, started_at, execution_timeout_ms,
    status, closed_at, last_event, continued_as, blocked_at, blocked_reason, paused_at, sla_deadline_at, sla_breached_at, sla_ms
FROM run
WHERE namespace = ?1
    AND (?2 IS NULL OR status = ?2)
    AND (?3 IS NULL OR workflow_type = ?3)
    AND (?7 IS NULL OR (paused_at IS NOT NULL) = ?7)
    AND (?8 IS NULL OR (sla_breached_at IS NOT NULL) = ?8)
    AND (started_at, execution_id) < (?4, ?5)
ORDER BY started_at DESC, execution_id DESC
LIMIT ?6
