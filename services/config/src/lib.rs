//! harvest-config
