SELECT version, first_slot, last_slot, shard_id
FROM harvest.slot_range
WHERE version = (SELECT max(version) FROM harvest.slot_range)
ORDER BY first_slot
