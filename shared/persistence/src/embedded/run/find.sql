SELECT execution_id, status
FROM (
    SELECT execution_id, status, 0 AS rank, started_at
    FROM run
    WHERE namespace = ?2 AND workflow_id = ?3 AND workflow_type = ?4 AND shard_id = ?1 AND status = 'RUNNING'
    UNION ALL
    SELECT execution_id, status, 1 AS rank, started_at
    FROM (
        SELECT execution_id, status, started_at
        FROM run
        WHERE namespace = ?2 AND workflow_id = ?3 AND workflow_type = ?4 AND shard_id = ?1 AND status <> 'RUNNING'
        ORDER BY started_at DESC, execution_id DESC
        LIMIT 1
    )
)
ORDER BY rank
LIMIT 1
