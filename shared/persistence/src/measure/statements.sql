SELECT s.query, sum(s.calls)::bigint
FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid
WHERE d.datname = $1 AND s.toplevel
GROUP BY s.query
