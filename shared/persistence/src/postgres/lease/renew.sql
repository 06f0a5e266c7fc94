-- An expired lease that nobody has taken is still ours to renew: the row's owner decides, and safety is the epoch anyway.
UPDATE harvest.harvest_lease SET lease_until = now() + $2::bigint * interval '1 millisecond' WHERE owner = $1 RETURNING shard_id
