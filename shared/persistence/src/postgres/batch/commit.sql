-- One batch of one shard, in one autocommit statement. Table names have no schema: the writer's search_path names the shard's leaves.
--
-- Every branch asks EXISTS (fence): no fence row, no write. An INSERT into a table that also has an UPDATE or DELETE branch counts
-- that branch first, because the order of branches is otherwise undefined and a continue-as-new would meet its own predecessor in
-- the unique index. A row occurs in one branch only. `= ANY` beside the join is what makes the update an index scan under a generic plan.
WITH fence AS (
    UPDATE harvest.harvest_shard SET batch_seq = $3::bigint WHERE shard_id = $1::integer AND epoch = $2::bigint RETURNING 1
),
run_changed AS (
    UPDATE run r
    SET status = u.status, closed_at = u.closed_at, last_event = u.last_event, continued_as = u.continued_as, blocked_at = u.blocked_at,
        blocked_reason = u.blocked_reason, paused_at = u.paused_at, sla_deadline_at = u.sla_deadline_at, sla_breached_at = u.sla_breached_at
    FROM unnest($4::uuid[], $5::text[], $6::bigint[], $7::bigint[], $8::uuid[], $9::bigint[], $10::bytea[], $11::bigint[],
        $12::bigint[], $13::bigint[])
        u (execution_id, status, closed_at, last_event, continued_as, blocked_at, blocked_reason, paused_at, sla_deadline_at, sla_breached_at)
    WHERE r.execution_id = ANY ($4::uuid[]) AND r.execution_id = u.execution_id AND EXISTS (SELECT FROM fence)
    RETURNING 1
),
run_new AS (
    INSERT INTO run (shard_id, execution_id, namespace, workflow_type, workflow_id, first_execution_id, parent_execution_id, task_queue, started_at,
        execution_timeout_ms, sla_ms, status, closed_at, last_event, continued_as, blocked_at, blocked_reason, paused_at, sla_deadline_at,
        sla_breached_at)
    SELECT $1::integer, u.*
    FROM unnest($14::uuid[], $15::text[], $16::text[], $17::text[], $18::uuid[], $19::uuid[], $20::text[], $21::bigint[], $22::bigint[], $23::bigint[], $24::text[],
        $25::bigint[], $26::bigint[], $27::uuid[], $28::bigint[], $29::bytea[], $30::bigint[], $31::bigint[], $32::bigint[]) u
    WHERE EXISTS (SELECT FROM fence) AND (SELECT count(*) FROM run_changed) >= 0
    RETURNING 1
),
history_new AS (
    INSERT INTO history (shard_id, execution_id, first_record, record_count, first_event, event_count, records)
    SELECT $1::integer, u.*
    FROM unnest($33::uuid[], $34::bigint[], $35::integer[], $36::bigint[], $37::integer[], $38::bytea[]) u
    WHERE EXISTS (SELECT FROM fence)
    RETURNING 1
),
task_gone AS (
    DELETE FROM task WHERE task_id = ANY ($39::bytea[]) AND EXISTS (SELECT FROM fence) RETURNING 1
),
task_new AS (
    INSERT INTO task (shard_id, task_id, sequence, kind, namespace, queue)
    SELECT $1::integer, u.*
    FROM unnest($40::bytea[], $41::bigint[], $42::smallint[], $43::text[], $44::text[]) u
    WHERE EXISTS (SELECT FROM fence) AND (SELECT count(*) FROM task_gone) >= 0
    RETURNING 1
),
due_changed AS (
    UPDATE due d
    SET due_at = u.due_at
    FROM unnest($45::uuid[], $46::bigint[]) u (execution_id, due_at)
    WHERE d.execution_id = ANY ($45::uuid[]) AND d.execution_id = u.execution_id AND EXISTS (SELECT FROM fence)
    RETURNING 1
),
due_gone AS (
    DELETE FROM due WHERE execution_id = ANY ($47::uuid[]) AND EXISTS (SELECT FROM fence) RETURNING 1
),
due_new AS (
    INSERT INTO due (shard_id, execution_id, due_at)
    SELECT $1::integer, u.*
    FROM unnest($48::uuid[], $49::bigint[]) u
    WHERE EXISTS (SELECT FROM fence) AND (SELECT count(*) FROM due_changed) + (SELECT count(*) FROM due_gone) >= 0
    RETURNING 1
),
outbox_gone AS (
    DELETE FROM outbox WHERE sequence = ANY ($50::bigint[]) AND EXISTS (SELECT FROM fence) RETURNING 1
),
outbox_new AS (
    INSERT INTO outbox (shard_id, sequence, target, message)
    SELECT $1::integer, u.*
    FROM unnest($51::bigint[], $52::uuid[], $53::bytea[]) u
    WHERE EXISTS (SELECT FROM fence) AND (SELECT count(*) FROM outbox_gone) >= 0
    RETURNING 1
)
-- 0: the shard is lost. 1: committed. Division by zero (22012): a row that the batch changes is not there, and nothing is written.
SELECT CASE WHEN NOT EXISTS (SELECT FROM fence) THEN 0
    ELSE 1 / (
        (SELECT count(*) FROM run_changed) = cardinality($4::uuid[])
        AND (SELECT count(*) FROM task_gone) = cardinality($39::bytea[])
        AND (SELECT count(*) FROM due_changed) = cardinality($45::uuid[])
        AND (SELECT count(*) FROM due_gone) = cardinality($47::uuid[])
        AND (SELECT count(*) FROM outbox_gone) = cardinality($50::bigint[])
    )::integer
    END AS outcome
