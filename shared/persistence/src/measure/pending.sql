SELECT count(*) FROM harvest.task WHERE namespace = 'default' AND queue = $1
