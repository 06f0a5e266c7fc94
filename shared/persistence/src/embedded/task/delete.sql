DELETE FROM task WHERE task_id = ?1 AND shard_id = ?2
