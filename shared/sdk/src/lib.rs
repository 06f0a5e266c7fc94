//! harvest-sdk
