//! harvest-fleet-config
