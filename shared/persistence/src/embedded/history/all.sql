SELECT records FROM history WHERE execution_id = ?1 AND shard_id = ?2 ORDER BY first_record
