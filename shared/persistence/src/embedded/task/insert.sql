INSERT INTO task (task_id, shard_id, sequence, kind, namespace, queue) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
