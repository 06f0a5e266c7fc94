INSERT INTO acknowledgement (shard_id, epoch, generation, number) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (shard_id) DO UPDATE SET epoch = excluded.epoch, generation = excluded.generation, number = excluded.number
WHERE (excluded.epoch, excluded.generation, excluded.number) > (acknowledgement.epoch, acknowledgement.generation, acknowledgement.number)
