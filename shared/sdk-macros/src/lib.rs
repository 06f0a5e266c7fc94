//! harvest-sdk-macros
