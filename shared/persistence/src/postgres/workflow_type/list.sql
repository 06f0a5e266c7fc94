-- Types of both kinds: processes that pull the configuration ask often, and this is one statement.
SELECT true AS is_workflow, namespace, name, info FROM harvest.workflow_type
UNION ALL
SELECT false, namespace, name, info FROM harvest.activity_type
ORDER BY 1, 2, 3
