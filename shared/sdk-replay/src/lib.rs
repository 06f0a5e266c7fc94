//! harvest-sdk-replay
