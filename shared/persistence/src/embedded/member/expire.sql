DELETE FROM member WHERE expires_at <= ?1
