//! harvest-rpc
