UPDATE harvest_lease SET owner = NULL, address = NULL, successor = ?3, lease_until = ?4 WHERE shard_id = ?1 AND owner = ?2
