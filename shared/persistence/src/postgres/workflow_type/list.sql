SELECT namespace, name, info FROM harvest.workflow_type ORDER BY namespace, name
