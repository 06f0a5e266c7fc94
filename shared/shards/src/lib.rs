//! harvest-shards
