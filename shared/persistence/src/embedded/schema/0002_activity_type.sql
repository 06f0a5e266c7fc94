-- What workers declare about activities. As workflow_type.

CREATE TABLE activity_type (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    info      BLOB NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT;
