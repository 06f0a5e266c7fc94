UPDATE harvest_lease SET owner = NULL, address = NULL, lease_until = ?3 WHERE shard_id = ?1 AND owner = ?2
