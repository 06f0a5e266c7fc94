//! The generated protocol: [`v1`] is public and never broken, [`internal`] is spoken between the services of one fleet (N and N-1).
//!
//! Documentation of every field is in the `.proto` files. May depend on prost and tonic only.
#![allow(missing_docs, clippy::all)]

/// The file descriptor set of all protos, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// `harvest.v1`: clients, workers, operators.
pub mod v1 {
    tonic::include_proto!("harvest.v1");
}

/// `harvest.internal.v1`: between services.
pub mod internal {
    /// The only version so far.
    pub mod v1 {
        tonic::include_proto!("harvest.internal.v1");
    }
}
