INSERT INTO harvest.acknowledgement AS a (shard_id, epoch, generation, number)
SELECT u.* FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[]) u
ON CONFLICT (shard_id) DO UPDATE SET epoch = excluded.epoch, generation = excluded.generation, number = excluded.number
WHERE (excluded.epoch, excluded.generation, excluded.number) > (a.epoch, a.generation, a.number)
