UPDATE harvest_lease
SET owner = ?2, address = ?3, successor = NULL, lease_until = ?4
WHERE shard_id = ?1 AND (owner = ?2 OR lease_until <= ?5 OR (owner IS NULL AND (successor IS NULL OR successor = ?2)))
