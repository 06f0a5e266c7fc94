INSERT INTO worker (worker_id, namespace, hello, last_seen) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (worker_id) DO UPDATE SET namespace = excluded.namespace, hello = excluded.hello, last_seen = excluded.last_seen
