//! harvest-integration-tests
