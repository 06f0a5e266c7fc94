UPDATE harvest_shard SET epoch = epoch + 1 WHERE shard_id = ?1 RETURNING epoch, batch_seq
