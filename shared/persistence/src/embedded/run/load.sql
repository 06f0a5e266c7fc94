SELECT execution_id, namespace, workflow_type, workflow_id, first_execution_id, parent_execution_id, task_queue, started_at, execution_timeout_ms,
    status, closed_at, last_event, continued_as, blocked_at, blocked_reason, paused_at, sla_deadline_at, sla_breached_at, sla_ms
FROM run
WHERE execution_id = ?1 AND shard_id = ?2
