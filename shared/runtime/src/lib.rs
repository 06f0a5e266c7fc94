//! harvest-runtime
