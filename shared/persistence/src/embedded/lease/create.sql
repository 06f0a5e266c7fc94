INSERT INTO harvest_lease (shard_id, lease_until) VALUES (?1, 0)
