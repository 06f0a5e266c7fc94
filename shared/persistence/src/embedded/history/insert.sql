INSERT INTO history (execution_id, first_record, shard_id, record_count, first_event, event_count, records) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
