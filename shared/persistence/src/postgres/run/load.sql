-- One statement, one snapshot: the row, all records, the tasks ($2 to $3 are the bounds of its task keys) and the deadline.
SELECT r.execution_id, r.namespace, r.workflow_type, r.workflow_id, r.first_execution_id, r.parent_execution_id, r.task_queue, r.started_at,
    r.execution_timeout_ms, r.status, r.closed_at, r.last_event, r.continued_as, r.blocked_at, r.blocked_reason,
    r.paused_at, r.sla_deadline_at, r.sla_breached_at, r.sla_ms,
    ARRAY (SELECT h.records FROM shard_0.history h WHERE h.execution_id = $1 ORDER BY h.first_record) AS records,
    t.task_ids, t.task_sequences, t.task_namespaces, t.task_queues,
    (SELECT d.due_at FROM shard_0.due d WHERE d.execution_id = $1) AS due_at
FROM shard_0.run r
CROSS JOIN (
    SELECT coalesce(array_agg(k.task_id), '{}') AS task_ids, coalesce(array_agg(k.sequence), '{}') AS task_sequences,
        coalesce(array_agg(k.namespace), '{}') AS task_namespaces, coalesce(array_agg(k.queue), '{}') AS task_queues
    FROM (
        SELECT task_id, sequence, namespace, queue FROM shard_0.task WHERE task_id >= $2 AND task_id <= $3 ORDER BY task_id
    ) k
) t
WHERE r.execution_id = $1
