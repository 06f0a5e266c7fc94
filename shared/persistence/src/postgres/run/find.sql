-- Of each business key its open run, else its newest closed one; the two halves use the two partial indexes.
SELECT key.position, found.execution_id, found.status
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS key (namespace, workflow_id, workflow_type, position)
CROSS JOIN LATERAL (
    (
        SELECT run.execution_id, run.status, 0 AS rank
        FROM shard_0.run
        WHERE run.namespace = key.namespace AND run.workflow_id = key.workflow_id AND run.workflow_type = key.workflow_type AND run.status = 'RUNNING'
        LIMIT 1
    )
    UNION ALL
    (
        SELECT run.execution_id, run.status, 1 AS rank
        FROM shard_0.run
        WHERE run.namespace = key.namespace AND run.workflow_id = key.workflow_id AND run.workflow_type = key.workflow_type AND run.status <> 'RUNNING'
        ORDER BY run.started_at DESC, run.execution_id DESC
        LIMIT 1
    )
    ORDER BY rank
    LIMIT 1
) AS found
