SELECT epoch FROM harvest.harvest_shard WHERE shard_id = $1
