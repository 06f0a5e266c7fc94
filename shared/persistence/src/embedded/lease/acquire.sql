UPDATE harvest_lease SET owner = ?2, address = ?3, lease_until = ?4 WHERE shard_id = ?1 AND (owner = ?2 OR owner IS NULL OR lease_until <= ?5)
