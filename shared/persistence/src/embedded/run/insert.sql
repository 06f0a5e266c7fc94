INSERT INTO run (execution_id, shard_id, namespace, workflow_type, workflow_id, first_execution_id, parent_execution_id, task_queue, started_at,
    execution_timeout_ms, status, closed_at, last_event, continued_as, blocked_at, blocked_reason,
    paused_at, sla_deadline_at, sla_breached_at, sla_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
