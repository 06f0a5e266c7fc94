-- Rows that hold events from $2 on, in order, until $3 bytes have been read before the next.
-- Record n holds no event after event n, so the row of record $2 is a start that skips nothing.
SELECT records
FROM (
    SELECT first_record, records, sum(octet_length(records)) OVER (ORDER BY first_record) - octet_length(records) AS bytes_before
    FROM (
        SELECT first_record, records
        FROM shard_0.history
        WHERE execution_id = $1
            AND first_record >= coalesce((
                SELECT h.first_record FROM shard_0.history h WHERE h.execution_id = $1 AND h.first_record <= $2 ORDER BY h.first_record DESC LIMIT 1
            ), 0)
            AND first_event + event_count > $2
        ORDER BY first_record
        LIMIT $4
    ) rows_in_order
) rows_with_bytes
WHERE bytes_before < $3 OR bytes_before = 0
ORDER BY first_record
