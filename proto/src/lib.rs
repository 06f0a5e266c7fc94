//! harvest-proto
