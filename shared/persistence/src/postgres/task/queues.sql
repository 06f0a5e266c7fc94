-- A loose index scan: one look-up a queue, however many tasks it has.
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
SELECT namespace, queue, kind FROM queues
