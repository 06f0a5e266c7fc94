-- The open run of a business key, else its newest closed one; the two halves use the two partial indexes.
(
    SELECT execution_id, status, 0 AS rank
    FROM shard_0.run
    WHERE namespace = $1 AND workflow_id = $2 AND workflow_type = $3 AND status = 'RUNNING'
    LIMIT 1
)
UNION ALL
(
    SELECT execution_id, status, 1 AS rank
    FROM shard_0.run
    WHERE namespace = $1 AND workflow_id = $2 AND workflow_type = $3 AND status <> 'RUNNING'
    ORDER BY started_at DESC, execution_id DESC
    LIMIT 1
)
ORDER BY rank
LIMIT 1
