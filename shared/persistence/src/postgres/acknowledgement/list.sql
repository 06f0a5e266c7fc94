SELECT s.shard_id, s.epoch AS present_epoch, a.epoch, a.generation, a.number
FROM harvest.harvest_shard s
LEFT JOIN harvest.acknowledgement a USING (shard_id)
ORDER BY s.shard_id
