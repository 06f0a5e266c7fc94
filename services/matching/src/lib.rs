//! harvest-matching
