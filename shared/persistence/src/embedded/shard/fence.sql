UPDATE harvest_shard SET batch_seq = ?3 WHERE shard_id = ?1 AND epoch = ?2
