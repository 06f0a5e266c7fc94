-- Waits for a batch in flight (lock_timeout bounds it). What that batch wrote is visible to later statements only.
UPDATE harvest.harvest_shard SET epoch = epoch + 1 WHERE shard_id = $1 RETURNING epoch, batch_seq
