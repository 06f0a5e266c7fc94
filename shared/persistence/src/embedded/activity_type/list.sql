SELECT namespace, name, info FROM activity_type ORDER BY namespace, name
