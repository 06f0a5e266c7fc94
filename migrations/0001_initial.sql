-- Harvest's first schema. Forward only: a later change is a new file that first expands and, releases later, contracts.
--
-- Instants of runs are bigint milliseconds since the Unix epoch, as the engine decides them. Instants of the control tables are
-- timestamptz on the database's clock, because several processes compare them.
-- Text is COLLATE "C": compared by bytes, so that no index depends on the machine's locale data.
-- Tables of runs are partitioned by shard; every key ends with shard_id. Leaves are made by harvest.create_shard.

CREATE TABLE harvest.run (
    execution_id         uuid   NOT NULL,
    first_execution_id   uuid   NOT NULL,
    parent_execution_id  uuid,
    continued_as         uuid,
    started_at           bigint NOT NULL,
    closed_at            bigint,
    last_event           bigint NOT NULL,
    execution_timeout_ms bigint,
    blocked_at           bigint,
    shard_id             integer NOT NULL,
    status               text   COLLATE "C" NOT NULL,
    namespace            text   COLLATE "C" NOT NULL,
    workflow_type        text   COLLATE "C" NOT NULL,
    workflow_id          text   COLLATE "C" NOT NULL,
    task_queue           text   COLLATE "C" NOT NULL,
    -- Bytes, not text: what a worker reports may hold U+0000.
    blocked_reason       bytea,
    PRIMARY KEY (execution_id, shard_id)
) PARTITION BY LIST (shard_id);

-- At most one open run of a business key. The workflow id comes before the type so that a list by workflow id uses it too.
CREATE UNIQUE INDEX run_open ON harvest.run (namespace, workflow_id, workflow_type, shard_id) WHERE status = 'RUNNING';
-- The newest closed run of a business key.
CREATE INDEX run_closed ON harvest.run (namespace, workflow_id, workflow_type, started_at) WHERE status <> 'RUNNING';
-- The order of lists. Without the execution id, which breaks ties: no index but the primary key may have it, or a plan made on an empty
-- table could look a run up by reading the whole of another index.
CREATE INDEX run_listed ON harvest.run (namespace, started_at DESC);

CREATE TABLE harvest.history (
    execution_id uuid    NOT NULL,
    first_record bigint  NOT NULL,
    first_event  bigint  NOT NULL,
    record_count integer NOT NULL,
    event_count  integer NOT NULL,
    shard_id     integer NOT NULL,
    records      bytea   COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (execution_id, first_record, shard_id)
) PARTITION BY LIST (shard_id);

CREATE TABLE harvest.task (
    sequence  bigint   NOT NULL,
    shard_id  integer  NOT NULL,
    kind      smallint NOT NULL CHECK (kind IN (0, 1)), -- 0 workflow task, 1 activity task
    task_id   bytea    NOT NULL CHECK (octet_length(task_id) = 24), -- execution id, then the activity id, big-endian
    namespace text     COLLATE "C" NOT NULL,
    queue     text     COLLATE "C" NOT NULL,
    PRIMARY KEY (task_id, shard_id)
) PARTITION BY LIST (shard_id);

CREATE INDEX task_backlog ON harvest.task (namespace, queue, kind, sequence);

CREATE TABLE harvest.due (
    execution_id uuid    NOT NULL,
    due_at       bigint  NOT NULL,
    shard_id     integer NOT NULL,
    PRIMARY KEY (execution_id, shard_id)
) PARTITION BY LIST (shard_id);

CREATE INDEX due_order ON harvest.due (due_at);

CREATE TABLE harvest.outbox (
    sequence bigint  NOT NULL,
    target   uuid    NOT NULL,
    shard_id integer NOT NULL,
    message  bytea   COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (sequence, shard_id)
) PARTITION BY LIST (shard_id);

-- One row a shard: every batch joins it. Nearly empty pages, so that its updates stay on their page.
CREATE TABLE harvest.harvest_shard (
    epoch     bigint  NOT NULL DEFAULT 0,
    batch_seq bigint  NOT NULL DEFAULT 0,
    shard_id  integer PRIMARY KEY
) WITH (fillfactor = 10);

-- Load control, in a table of its own so that renewing a lease never waits for a batch.
CREATE TABLE harvest.harvest_lease (
    lease_until timestamptz NOT NULL DEFAULT now(),
    shard_id    integer PRIMARY KEY REFERENCES harvest.harvest_shard,
    owner       text COLLATE "C",
    address     text COLLATE "C",
    successor   text COLLATE "C"
) WITH (fillfactor = 10);

CREATE TABLE harvest.member (
    expires_at timestamptz NOT NULL,
    process_id text COLLATE "C" PRIMARY KEY,
    service    text COLLATE "C" NOT NULL,
    address    text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- The slots of a map's version; the highest version is in force.
CREATE TABLE harvest.slot_range (
    version    bigint  NOT NULL,
    first_slot integer NOT NULL CHECK (first_slot BETWEEN 0 AND 4095),
    last_slot  integer NOT NULL CHECK (last_slot BETWEEN first_slot AND 4095),
    shard_id   integer NOT NULL REFERENCES harvest.harvest_shard,
    PRIMARY KEY (version, first_slot)
);

-- Exactly one row.
CREATE TABLE harvest.limits (
    generation bigint  NOT NULL,
    number     bigint  NOT NULL,
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    document   text    NOT NULL
);
INSERT INTO harvest.limits (generation, number, document) VALUES (1, 0, '{}');

CREATE TABLE harvest.limits_audit (
    generation bigint      NOT NULL,
    number     bigint      NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    actor      text        NOT NULL,
    reason     text        NOT NULL,
    summary    text        NOT NULL,
    document   text        NOT NULL,
    PRIMARY KEY (generation, number)
);

CREATE TABLE harvest.acknowledgement (
    epoch      bigint  NOT NULL,
    generation bigint  NOT NULL,
    number     bigint  NOT NULL,
    shard_id   integer PRIMARY KEY REFERENCES harvest.harvest_shard
) WITH (fillfactor = 50);

CREATE TABLE harvest.workflow_type (
    namespace text  COLLATE "C" NOT NULL,
    name      text  COLLATE "C" NOT NULL,
    info      bytea NOT NULL,
    PRIMARY KEY (namespace, name)
);

CREATE TABLE harvest.worker (
    last_seen timestamptz NOT NULL DEFAULT now(),
    worker_id text  COLLATE "C" PRIMARY KEY,
    namespace text  COLLATE "C" NOT NULL,
    hello     bytea NOT NULL
) WITH (fillfactor = 50);

-- Makes a shard: its schema, its leaves, its fence and its lease. The leaves are in a schema of their own so that one statement
-- text serves all shards: the writer's search_path picks the shard.
CREATE FUNCTION harvest.create_shard(shard integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    leaf text;
    free integer;
BEGIN
    EXECUTE format('CREATE SCHEMA %I', 'shard_' || shard);
    FOR leaf, free IN VALUES ('run', 70), ('history', 100), ('task', 100), ('due', 80), ('outbox', 100) LOOP
        EXECUTE format('CREATE TABLE %I.%I PARTITION OF harvest.%I FOR VALUES IN (%s) WITH (fillfactor = %s)', 'shard_' || shard, leaf, leaf, shard, free);
    END LOOP;
    INSERT INTO harvest.harvest_shard (shard_id) VALUES (shard);
    INSERT INTO harvest.harvest_lease (shard_id) VALUES (shard);
END
$$;
