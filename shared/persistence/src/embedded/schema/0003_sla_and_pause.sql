-- Late and paused runs. A paused run keeps the status RUNNING, and with it its business key.

ALTER TABLE run ADD COLUMN sla_ms INTEGER;
ALTER TABLE run ADD COLUMN sla_deadline_at INTEGER;
ALTER TABLE run ADD COLUMN sla_breached_at INTEGER;
ALTER TABLE run ADD COLUMN paused_at INTEGER;

CREATE INDEX run_late ON run (namespace, started_at DESC) WHERE sla_breached_at IS NOT NULL;
CREATE INDEX run_paused ON run (namespace, started_at DESC) WHERE paused_at IS NOT NULL;
