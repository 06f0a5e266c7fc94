INSERT INTO slot_range (version, first_slot, last_slot, shard_id) VALUES (1, ?1, ?2, ?3)
