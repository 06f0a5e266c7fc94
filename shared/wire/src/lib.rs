//! harvest-wire
