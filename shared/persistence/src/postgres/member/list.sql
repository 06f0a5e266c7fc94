SELECT service, process_id, address FROM harvest.member WHERE expires_at > now() ORDER BY service, process_id
