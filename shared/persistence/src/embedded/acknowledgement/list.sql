SELECT s.shard_id, s.epoch, a.epoch, a.generation, a.number
FROM harvest_shard s
LEFT JOIN acknowledgement a ON a.shard_id = s.shard_id
ORDER BY s.shard_id
