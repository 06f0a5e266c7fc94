INSERT INTO activity_type (namespace, name, info) VALUES (?1, ?2, ?3) ON CONFLICT (namespace, name) DO UPDATE SET info = excluded.info
