-- The plus keeps the planner from walking all tasks of the shard by the backlog's index.
SELECT task_id, sequence, namespace, queue FROM task WHERE task_id BETWEEN ?1 AND ?2 AND +shard_id = ?3 ORDER BY task_id
