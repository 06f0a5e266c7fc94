-- Copies $1 to $2 of the completed runs of one type in one shard, history included. A copy's id keeps the slot and the time of its original, so
-- that it belongs to the shard; the last 15 of its 32 hexadecimal digits are new.
WITH original AS (
    SELECT execution_id, shard_id, started_at, closed_at, last_event, execution_timeout_ms, status, namespace, workflow_type, task_queue,
        row_number() OVER (ORDER BY execution_id) - 1 AS place, count(*) OVER () AS originals
    FROM shard_0.run
    WHERE status = 'COMPLETED' AND workflow_type = $3 AND workflow_id NOT LIKE 'copy-%'
), copy AS (
    SELECT number, execution_id, (substr(execution_id::text, 1, 20) || substr(digits, 1, 3) || '-' || substr(digits, 4, 12))::uuid AS copy_id,
        shard_id, started_at, closed_at, last_event, execution_timeout_ms, status, namespace, workflow_type, task_queue
    FROM generate_series($1::bigint, $2::bigint) number
    JOIN original ON place = number % originals
    CROSS JOIN LATERAL (SELECT md5(execution_id::text || number) AS digits) d
), runs AS (
    INSERT INTO shard_0.run (execution_id, first_execution_id, shard_id, started_at, closed_at, last_event, execution_timeout_ms, status, namespace,
        workflow_type, task_queue, workflow_id)
    SELECT copy_id, copy_id, shard_id, started_at, closed_at, last_event, execution_timeout_ms, status, namespace, workflow_type, task_queue,
        'copy-' || number
    FROM copy
    RETURNING 1
), histories AS (
    INSERT INTO shard_0.history (execution_id, shard_id, first_record, first_event, record_count, event_count, records)
    SELECT c.copy_id, h.shard_id, h.first_record, h.first_event, h.record_count, h.event_count, h.records
    FROM copy c
    JOIN shard_0.history h ON h.execution_id = c.execution_id
    RETURNING 1
)
SELECT count(*) FROM runs
