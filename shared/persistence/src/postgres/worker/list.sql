SELECT worker_id, namespace, hello, floor(extract(epoch FROM last_seen) * 1000)::bigint AS last_seen
FROM harvest.worker
WHERE last_seen >= now() - $1::bigint * interval '1 millisecond'
ORDER BY namespace, worker_id
