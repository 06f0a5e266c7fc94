-- Record n holds no event after event n, so the row of record ?3 is a start that skips nothing. The reader stops when it has enough.
SELECT records
FROM history
WHERE execution_id = ?1 AND shard_id = ?2
    AND first_record >= coalesce((SELECT max(first_record) FROM history WHERE execution_id = ?1 AND shard_id = ?2 AND first_record <= ?3), 0)
    AND first_event + event_count > ?3
ORDER BY first_record
