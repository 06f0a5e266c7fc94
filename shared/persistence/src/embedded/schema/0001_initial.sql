-- The embedded store's first schema. Forward only, as the migrations of Postgres. Instants are milliseconds since the Unix epoch.
-- Tables of runs have no rowid: their key is their order on disk. Every such key ends with shard_id.

CREATE TABLE run (
    execution_id         BLOB    NOT NULL,
    shard_id             INTEGER NOT NULL,
    namespace            TEXT    NOT NULL,
    workflow_type        TEXT    NOT NULL,
    workflow_id          TEXT    NOT NULL,
    first_execution_id   BLOB    NOT NULL,
    parent_execution_id  BLOB,
    task_queue           TEXT    NOT NULL,
    started_at           INTEGER NOT NULL,
    execution_timeout_ms INTEGER,
    status               TEXT    NOT NULL,
    closed_at            INTEGER,
    last_event           INTEGER NOT NULL,
    continued_as         BLOB,
    blocked_at           INTEGER,
    blocked_reason       BLOB,
    PRIMARY KEY (execution_id, shard_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX run_open ON run (namespace, workflow_id, workflow_type, shard_id) WHERE status = 'RUNNING';
CREATE INDEX run_closed ON run (namespace, workflow_id, workflow_type, started_at) WHERE status <> 'RUNNING';
CREATE INDEX run_listed ON run (namespace, started_at, execution_id);

CREATE TABLE history (
    execution_id BLOB    NOT NULL,
    first_record INTEGER NOT NULL,
    shard_id     INTEGER NOT NULL,
    record_count INTEGER NOT NULL,
    first_event  INTEGER NOT NULL,
    event_count  INTEGER NOT NULL,
    records      BLOB    NOT NULL,
    UNIQUE (execution_id, first_record, shard_id)
) STRICT;

CREATE TABLE task (
    task_id   BLOB    NOT NULL CHECK (length(task_id) = 24),
    shard_id  INTEGER NOT NULL,
    sequence  INTEGER NOT NULL,
    kind      INTEGER NOT NULL CHECK (kind IN (0, 1)),
    namespace TEXT    NOT NULL,
    queue     TEXT    NOT NULL,
    PRIMARY KEY (task_id, shard_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_backlog ON task (shard_id, namespace, queue, kind, sequence);

CREATE TABLE due (
    execution_id BLOB    NOT NULL,
    shard_id     INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    PRIMARY KEY (execution_id, shard_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX due_order ON due (shard_id, due_at);

CREATE TABLE outbox (
    shard_id INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    target   BLOB    NOT NULL,
    message  BLOB    NOT NULL,
    PRIMARY KEY (shard_id, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE harvest_shard (
    shard_id  INTEGER PRIMARY KEY,
    epoch     INTEGER NOT NULL,
    batch_seq INTEGER NOT NULL
) STRICT;

CREATE TABLE harvest_lease (
    shard_id    INTEGER PRIMARY KEY,
    owner       TEXT,
    address     TEXT,
    successor   TEXT,
    lease_until INTEGER NOT NULL
) STRICT;

CREATE TABLE member (
    process_id TEXT PRIMARY KEY,
    service    TEXT NOT NULL,
    address    TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE slot_range (
    version    INTEGER NOT NULL,
    first_slot INTEGER NOT NULL,
    last_slot  INTEGER NOT NULL,
    shard_id   INTEGER NOT NULL,
    PRIMARY KEY (version, first_slot)
) STRICT;

CREATE TABLE limits (
    single_row INTEGER PRIMARY KEY CHECK (single_row = 1),
    generation INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    document   TEXT    NOT NULL
) STRICT;
INSERT INTO limits (single_row, generation, number, document) VALUES (1, 1, 0, '{}');

CREATE TABLE limits_audit (
    generation INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    summary    TEXT    NOT NULL,
    document   TEXT    NOT NULL,
    PRIMARY KEY (generation, number)
) STRICT;

CREATE TABLE acknowledgement (
    shard_id   INTEGER PRIMARY KEY,
    epoch      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    number     INTEGER NOT NULL
) STRICT;

CREATE TABLE workflow_type (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    info      BLOB NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT;

CREATE TABLE worker (
    worker_id TEXT PRIMARY KEY,
    namespace TEXT    NOT NULL,
    hello     BLOB    NOT NULL,
    last_seen INTEGER NOT NULL
) STRICT;
