INSERT INTO harvest.activity_type (namespace, name, info)
SELECT u.* FROM unnest($1::text[], $2::text[], $3::bytea[]) u
ON CONFLICT (namespace, name) DO UPDATE SET info = excluded.info
