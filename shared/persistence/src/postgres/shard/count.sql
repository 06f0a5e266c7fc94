SELECT count(*) AS shards FROM harvest.harvest_shard
