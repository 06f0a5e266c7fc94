UPDATE harvest_lease SET lease_until = ?2 WHERE owner = ?1 RETURNING shard_id
