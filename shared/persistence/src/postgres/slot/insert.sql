INSERT INTO harvest.slot_range (version, first_slot, last_slot, shard_id)
SELECT 1, u.first_slot, u.last_slot, u.shard_id FROM unnest($1::integer[], $2::integer[], $3::integer[]) u (first_slot, last_slot, shard_id)
