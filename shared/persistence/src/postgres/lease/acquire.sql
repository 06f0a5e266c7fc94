UPDATE harvest.harvest_lease
SET owner = $2, address = $3, successor = NULL, lease_until = now() + $4::bigint * interval '1 millisecond'
WHERE shard_id = $1 AND (owner = $2 OR lease_until <= now() OR (owner IS NULL AND (successor IS NULL OR successor = $2)))
