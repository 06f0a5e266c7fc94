-- Ends the session of the shard's present owner, which holds the fence row: Execute without Sync escapes every timeout.
SELECT pg_terminate_backend(a.pid)
FROM harvest.harvest_shard s
JOIN pg_stat_activity a ON a.application_name = 'harvest:shard:' || s.shard_id || ':epoch:' || s.epoch
WHERE s.shard_id = $1 AND a.datname = current_database() AND a.pid <> pg_backend_pid()
