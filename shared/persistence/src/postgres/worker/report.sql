WITH gone AS (
    DELETE FROM harvest.worker
    WHERE (worker_id = ANY ($4::text[]) OR last_seen < now() - $5::bigint * interval '1 millisecond') AND worker_id <> ALL ($1::text[])
)
INSERT INTO harvest.worker (worker_id, namespace, hello, last_seen)
SELECT u.*, now() FROM unnest($1::text[], $2::text[], $3::bytea[]) u
ON CONFLICT (worker_id) DO UPDATE SET namespace = excluded.namespace, hello = excluded.hello, last_seen = excluded.last_seen
