//! The committed Rust code of the protocol is the code generated from `proto/runtime/v1/api.proto`.
//!
//! After a change of the proto, run with `UPDATE_GENERATED=1` to regenerate it.

use std::fs;
use std::path::{Path, PathBuf};

use protox::prost_reflect::DescriptorPool;
use tonic_prost_build::{Builder, Config, FileDescriptorSet};

const HEADER: &str =
    "// Made from proto/runtime/v1/api.proto by tests/cri/proto_generated.rs. Do not edit.\n\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn descriptors() -> FileDescriptorSet {
    protox::compile(["runtime/v1/api.proto"], [root().join("proto")]).unwrap()
}

fn generate(builder: Builder, config: Config) -> String {
    let dir = tempfile::tempdir().unwrap();
    builder
        .out_dir(dir.path())
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(descriptors(), config)
        .unwrap();
    HEADER.to_string() + &fs::read_to_string(dir.path().join("runtime.v1.rs")).unwrap()
}

fn messages() -> String {
    let mut config = Config::new();
    // Maps in order, so that equal messages are equal bytes. Credentials get a `Debug` of their own.
    config.btree_map(["."]).skip_debug([".runtime.v1.AuthConfig"]);
    generate(
        tonic_prost_build::configure()
            .build_client(false)
            .build_server(false),
        config,
    )
}

/// Only the stubs: the messages are in the module above.
fn stubs(client: bool) -> String {
    let mut config = Config::new();
    config.extern_path(".runtime.v1", "crate::v1");
    generate(
        tonic_prost_build::configure()
            .build_client(client)
            .build_server(!client),
        config,
    )
}

fn check(file: &str, generated: &str) {
    let path: PathBuf = root().join("src/v1").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "src/v1/{file} is not what the proto gives: run UPDATE_GENERATED=1 cargo test -p kubelet-cri --all-features --test cri proto_generated"
    );
}

#[test]
fn messages_are_current() {
    check("messages.rs", &messages());
}

#[test]
fn client_is_current() {
    check("grpc_client.rs", &stubs(true));
}

#[test]
fn server_is_current() {
    check("grpc_server.rs", &stubs(false));
}

#[test]
fn all_calls_of_kubernetes_1_36_are_there() {
    let pool = DescriptorPool::from_file_descriptor_set(descriptors()).unwrap();
    let calls: Vec<(String, usize)> = pool
        .services()
        .map(|s| (s.full_name().to_string(), s.methods().count()))
        .collect();
    assert_eq!(
        calls,
        [
            ("runtime.v1.RuntimeService".to_string(), 35),
            ("runtime.v1.ImageService".to_string(), 6)
        ]
    );
}
