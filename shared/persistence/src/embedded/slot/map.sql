SELECT version, first_slot, last_slot, shard_id FROM slot_range WHERE version = (SELECT max(version) FROM slot_range) ORDER BY first_slot
