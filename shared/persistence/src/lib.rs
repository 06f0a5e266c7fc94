//! harvest-persistence
