-- Late and paused runs. A paused run keeps the status RUNNING, and with it its business key.

ALTER TABLE harvest.run
    ADD COLUMN sla_ms bigint,
    ADD COLUMN sla_deadline_at bigint,
    ADD COLUMN sla_breached_at bigint,
    ADD COLUMN paused_at bigint;

-- Lists of what is late, or paused, among millions that are not.
CREATE INDEX run_late ON harvest.run (namespace, started_at DESC) WHERE sla_breached_at IS NOT NULL;
CREATE INDEX run_paused ON harvest.run (namespace, started_at DESC) WHERE paused_at IS NOT NULL;
