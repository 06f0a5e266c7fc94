INSERT INTO harvest_shard (shard_id, epoch, batch_seq) VALUES (?1, 0, 0)
