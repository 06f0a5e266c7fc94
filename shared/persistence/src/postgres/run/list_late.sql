-- As list.sql for runs that were found to be late, by their partial index: a plan for any value of $8 could not use it. Newest first over
-- all shards; ($4, $5) is the last row of the page before, or the end of time.
SELECT execution_id, namespace, workflow_type, workflow_id, first_execution_id, parent_execution_id, task_queue, started_at, execution_timeout_ms,
    status, closed_at, last_event, continued_as, blocked_at, blocked_reason, paused_at, sla_deadline_at, sla_breached_at, sla_ms
FROM harvest.run
WHERE namespace = $1
    AND sla_breached_at IS NOT NULL
    AND ($2::text IS NULL OR status = $2)
    AND ($3::text IS NULL OR workflow_type = $3)
    AND ($7::boolean IS NULL OR (paused_at IS NOT NULL) = $7)
    AND ($8::boolean IS NULL OR (sla_breached_at IS NOT NULL) = $8)
    AND (started_at, execution_id) < ($4, $5)
ORDER BY started_at DESC, execution_id DESC
LIMIT $6
