SELECT l.shard_id, l.owner, l.address, s.epoch, l.lease_until - ?1
FROM harvest_lease l
JOIN harvest_shard s ON s.shard_id = l.shard_id
ORDER BY l.shard_id
