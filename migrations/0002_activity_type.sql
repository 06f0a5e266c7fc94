-- What workers declare about activities: attributes apply to whoever schedules one, by name too. As harvest.workflow_type.

CREATE TABLE harvest.activity_type (
    namespace text  COLLATE "C" NOT NULL,
    name      text  COLLATE "C" NOT NULL,
    info      bytea NOT NULL,
    PRIMARY KEY (namespace, name)
);
