//! harvest-history
