SELECT l.shard_id, l.owner, l.address, s.epoch, floor(extract(epoch FROM l.lease_until - clock_timestamp()) * 1000)::bigint AS remaining_ms
FROM harvest.harvest_lease l
JOIN harvest.harvest_shard s USING (shard_id)
ORDER BY l.shard_id
