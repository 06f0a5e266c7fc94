SELECT service, process_id, address FROM member WHERE expires_at > ?1 ORDER BY service, process_id
