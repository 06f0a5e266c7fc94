UPDATE harvest_lease SET owner = ?3, address = ?4, lease_until = ?5 WHERE shard_id = ?1 AND owner = ?2
