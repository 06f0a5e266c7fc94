SELECT execution_id, first_event, event_count, (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000)::float8
FROM harvest.history
WHERE execution_id = ANY($1) AND event_count > 0 AND pg_xact_commit_timestamp(xmin) IS NOT NULL
