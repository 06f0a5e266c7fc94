//! Compiles the protos with protox: no protoc on the machine.

use prost::Message as _;
use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from("proto");
    let files = [
        "harvest/v1/common.proto",
        "harvest/v1/history.proto",
        "harvest/v1/workflow_service.proto",
        "harvest/v1/worker_service.proto",
        "harvest/v1/admin_service.proto",
        "harvest/internal/v1/storage.proto",
        "harvest/internal/v1/history.proto",
        "harvest/internal/v1/matching.proto",
        "harvest/internal/v1/timer_scanner.proto",
        "harvest/internal/v1/config.proto",
        "harvest/internal/v1/frontend.proto",
    ];
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(files, [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
