//! The committed Rust code of CSI is the code generated from `proto/csi/v1/csi.proto`.
//!
//! After a change of the proto, run with `UPDATE_GENERATED=1` to regenerate it.

use std::fs;
use std::path::{Path, PathBuf};

use protox::prost_reflect::DescriptorPool;
use tonic_prost_build::{Builder, Config, FileDescriptorSet};

const HEADER: &str =
    "// Made from proto/csi/v1/csi.proto by tests/volume/csi/proto_generated.rs. Do not edit.\n\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn descriptors() -> FileDescriptorSet {
    protox::compile(["csi/v1/csi.proto"], [root().join("proto")]).unwrap()
}

fn generate(builder: Builder, config: Config) -> String {
    let dir = tempfile::tempdir().unwrap();
    builder
        .out_dir(dir.path())
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(descriptors(), config)
        .unwrap();
    HEADER.to_string() + &fs::read_to_string(dir.path().join("csi.v1.rs")).unwrap()
}

/// The messages with secrets: they get a `Debug` of their own.
fn with_secrets() -> Vec<String> {
    let pool = DescriptorPool::from_file_descriptor_set(descriptors()).unwrap();
    let messages = pool.all_messages();
    let secret = messages.filter(|message| message.get_field_by_name("secrets").is_some());
    secret
        .map(|message| format!(".{}", message.full_name()))
        .collect()
}

fn messages() -> String {
    let mut config = Config::new();
    // Maps in order, so that equal messages are equal bytes.
    config.btree_map(["."]).skip_debug(with_secrets());
    let builder = tonic_prost_build::configure()
        .build_client(false)
        .build_server(false);
    generate(builder, config)
}

/// Only the stubs: the messages are in the module above.
fn stubs(client: bool) -> String {
    let mut config = Config::new();
    config.extern_path(".csi.v1", "crate::csi::v1");
    let builder = tonic_prost_build::configure()
        .build_client(client)
        .build_server(!client);
    generate(builder, config)
}

fn check(file: &str, generated: &str) {
    let path: PathBuf = root().join("src/csi/v1").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "src/csi/v1/{file} is not what the proto gives: run UPDATE_GENERATED=1 cargo test -p kubelet-volume --all-features --test volume csi::proto_generated"
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
fn all_calls_of_a_node_are_there() {
    let pool = DescriptorPool::from_file_descriptor_set(descriptors()).unwrap();
    let calls: Vec<(String, usize)> = pool
        .services()
        .map(|service| (service.name().to_string(), service.methods().count()))
        .collect();
    let expected = [
        ("Identity", 3),
        ("Controller", 15),
        ("GroupController", 4),
        ("SnapshotMetadata", 2),
        ("Node", 8),
    ];
    assert_eq!(calls, expected.map(|(name, count)| (name.to_string(), count)));
}
