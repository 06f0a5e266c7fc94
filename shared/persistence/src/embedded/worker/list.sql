SELECT worker_id, namespace, hello, last_seen FROM worker WHERE last_seen >= ?1 ORDER BY namespace, worker_id
