-- Raises the epoch only from ours: zero rows mean that somebody else has the shard.
UPDATE harvest.harvest_shard SET epoch = epoch + 1 WHERE shard_id = $1 AND epoch = $2 RETURNING epoch, batch_seq
