SELECT epoch FROM harvest_shard WHERE shard_id = ?1
