UPDATE harvest.harvest_lease
SET owner = $3, address = $4, lease_until = now() + $5::bigint * interval '1 millisecond'
WHERE shard_id = $1 AND owner = $2
