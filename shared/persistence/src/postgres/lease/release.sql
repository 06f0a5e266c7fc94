UPDATE harvest.harvest_lease
SET owner = NULL, address = NULL, successor = $3,
    lease_until = CASE WHEN $3::text IS NULL THEN now() ELSE now() + $4::bigint * interval '1 millisecond' END
WHERE shard_id = $1 AND owner = $2
