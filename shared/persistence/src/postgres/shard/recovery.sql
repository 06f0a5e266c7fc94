-- The highest task sequence is looked up queue by queue: no index has it across queues, and one more would cost every task.
WITH RECURSIVE queues AS (
    (SELECT namespace, queue, kind FROM shard_0.task ORDER BY namespace, queue, kind LIMIT 1)
    UNION ALL
    SELECT next.namespace, next.queue, next.kind
    FROM queues q
    CROSS JOIN LATERAL (
        SELECT t.namespace, t.queue, t.kind
        FROM shard_0.task t
        WHERE (t.namespace, t.queue, t.kind) > (q.namespace, q.queue, q.kind)
        ORDER BY t.namespace, t.queue, t.kind
        LIMIT 1
    ) next
)
SELECT
    coalesce((
        SELECT max(last.sequence)
        FROM queues q
        CROSS JOIN LATERAL (
            SELECT t.sequence
            FROM shard_0.task t
            WHERE t.namespace = q.namespace AND t.queue = q.queue AND t.kind = q.kind
            ORDER BY t.sequence DESC
            LIMIT 1
        ) last
    ), 0) AS last_task_sequence,
    coalesce((SELECT o.sequence FROM shard_0.outbox o ORDER BY o.sequence DESC LIMIT 1), 0) AS last_outbox_sequence
