SELECT namespace, name, info FROM workflow_type ORDER BY namespace, name
