-- Busy rows are skipped, as in check_in.sql.
WITH expired AS (
    DELETE FROM harvest.member
    WHERE process_id IN (SELECT process_id FROM harvest.member WHERE expires_at <= now() AND process_id <> $1 FOR UPDATE SKIP LOCKED)
)
INSERT INTO harvest.member (process_id, service, address, expires_at)
VALUES ($1, $2, $3, now() + $4::bigint * interval '1 millisecond')
ON CONFLICT (process_id) DO UPDATE SET service = excluded.service, address = excluded.address, expires_at = excluded.expires_at
