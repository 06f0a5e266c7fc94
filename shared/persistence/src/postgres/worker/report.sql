-- Busy rows are skipped: another frontend reports those workers right now, and two that waited for each other's rows would be a deadlock.
WITH gone AS (
    DELETE FROM harvest.worker
    WHERE worker_id IN (
        SELECT worker_id FROM harvest.worker
        WHERE (worker_id = ANY ($4::text[]) OR last_seen < now() - $5::bigint * interval '1 millisecond') AND worker_id <> ALL ($1::text[])
        FOR UPDATE SKIP LOCKED
    )
)
INSERT INTO harvest.worker (worker_id, namespace, hello, last_seen)
SELECT u.*, now() FROM unnest($1::text[], $2::text[], $3::bytea[]) u
ON CONFLICT (worker_id) DO UPDATE SET namespace = excluded.namespace, hello = excluded.hello, last_seen = excluded.last_seen
