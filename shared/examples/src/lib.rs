//! harvest-examples
