UPDATE harvest.harvest_lease SET owner = NULL, address = NULL, lease_until = now() WHERE shard_id = $1 AND owner = $2
