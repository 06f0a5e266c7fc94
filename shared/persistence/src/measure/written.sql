SELECT
    coalesce(sum(count) FILTER (WHERE "resource_manager/record_type" = 'Transaction/COMMIT'), 0)::bigint,
    coalesce(sum(record_size), 0)::bigint
FROM pg_get_wal_stats($1::text::pg_lsn, $2::text::pg_lsn, true)
