INSERT INTO member (process_id, service, address, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (process_id) DO UPDATE SET service = excluded.service, address = excluded.address, expires_at = excluded.expires_at
