SELECT harvest.create_shard($1)
