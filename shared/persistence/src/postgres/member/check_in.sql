-- Busy rows are skipped: their processes are checking in right now, and two that waited for each other's rows would be a deadlock.
WITH expired AS (
    DELETE FROM harvest.member
    WHERE process_id IN (SELECT process_id FROM harvest.member WHERE expires_at <= now() AND process_id <> $1 FOR UPDATE SKIP LOCKED)
),
announced AS (
    INSERT INTO harvest.member (process_id, service, address, expires_at)
    VALUES ($1, $2, $3, now() + $4::bigint * interval '1 millisecond')
    ON CONFLICT (process_id) DO UPDATE SET service = excluded.service, address = excluded.address, expires_at = excluded.expires_at
    RETURNING service, process_id, address
)
-- What the branches above write is not visible to this one: it adds the announced row itself.
SELECT service, process_id, address FROM announced
UNION ALL
SELECT service, process_id, address FROM harvest.member WHERE expires_at > now() AND process_id <> $1
ORDER BY service, process_id
