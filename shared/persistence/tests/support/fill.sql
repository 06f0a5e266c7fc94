-- Rows $from to $to of shard 0. Up to 90 000 a run is closed, and a few of the oldest were late, or are paused; above it is open and has everything that a run can have.
INSERT INTO shard_0.run (shard_id, execution_id, namespace, workflow_type, workflow_id, first_execution_id, task_queue, started_at, status, last_event,
    sla_breached_at, paused_at)
SELECT 0, id, 'default', 'order', 'order-' || n, id, 'orders', n, CASE WHEN n > 90000 THEN 'RUNNING' ELSE 'COMPLETED' END, 5,
    CASE WHEN n BETWEEN 10 AND 20 THEN n END, CASE WHEN n BETWEEN 90010 AND 90020 THEN n END
FROM generate_series($from, $to) n, LATERAL (SELECT ('00070000-0000-8000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id) i;

INSERT INTO shard_0.history (shard_id, execution_id, first_record, record_count, first_event, event_count, records)
SELECT 0, ('00070000-0000-8000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, first, 3, first, 3, decode(repeat('ab', 200), 'hex')
FROM generate_series($from, $to) n, (VALUES (1), (4)) v (first);

INSERT INTO shard_0.task (shard_id, task_id, sequence, kind, namespace, queue)
SELECT 0, uuid_send(('00070000-0000-8000-8000-' || lpad(to_hex(n), 12, '0'))::uuid) || '\x0000000000000000'::bytea, n, 0, 'default', 'orders'
FROM generate_series($from, $to) n;

INSERT INTO shard_0.due (shard_id, execution_id, due_at)
SELECT 0, ('00070000-0000-8000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, n
FROM generate_series($from, $to) n;

INSERT INTO shard_0.outbox (shard_id, sequence, target, message)
SELECT 0, n, ('00070000-0000-8000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, '\x00'
FROM generate_series($from, $to) n;
