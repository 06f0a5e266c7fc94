INSERT INTO limits_audit (generation, number, changed_at, actor, reason, summary, document) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
