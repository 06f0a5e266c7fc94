UPDATE harvest.harvest_lease
SET owner = $2, address = $3, lease_until = now() + $4::bigint * interval '1 millisecond'
WHERE shard_id = $1 AND (owner = $2 OR owner IS NULL OR lease_until <= now())
