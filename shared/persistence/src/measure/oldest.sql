-- Per shard the tasks of a queue in the order in which they are to be handed out.
SELECT shard_id, task_id
FROM (
    SELECT shard_id, task_id, row_number() OVER (PARTITION BY shard_id ORDER BY sequence) AS place
    FROM harvest.task
    WHERE namespace = 'default' AND queue = $1 AND kind = 1
) placed
WHERE place <= $2
ORDER BY shard_id, place
