SELECT count(*) FROM harvest_shard
