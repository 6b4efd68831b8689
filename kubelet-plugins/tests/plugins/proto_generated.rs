//! The committed Rust code of the protocol is the code generated from `proto/pluginregistration/v1/api.proto`.
//!
//! After a change of the proto, run with `UPDATE_GENERATED=1` to regenerate it.

use std::fs;
use std::path::{Path, PathBuf};

use tonic_prost_build::{Builder, Config, FileDescriptorSet};

const HEADER: &str = "// Made from proto/pluginregistration/v1/api.proto by tests/plugins/proto_generated.rs. Do not edit.\n\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn descriptors() -> FileDescriptorSet {
    protox::compile(["pluginregistration/v1/api.proto"], [root().join("proto")]).unwrap()
}

fn generate(builder: Builder, config: Config) -> String {
    let dir = tempfile::tempdir().unwrap();
    builder
        .out_dir(dir.path())
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(descriptors(), config)
        .unwrap();
    HEADER.to_string() + &fs::read_to_string(dir.path().join("pluginregistration.rs")).unwrap()
}

fn messages() -> String {
    let builder = tonic_prost_build::configure()
        .build_client(false)
        .build_server(false);
    generate(builder, Config::new())
}

/// Only the stubs: the messages are in the module above.
fn stubs(client: bool) -> String {
    let mut config = Config::new();
    config.extern_path(".pluginregistration", "crate::v1");
    let builder = tonic_prost_build::configure()
        .build_client(client)
        .build_server(!client);
    generate(builder, config)
}

fn check(file: &str, generated: &str) {
    let path: PathBuf = root().join("src/v1").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "src/v1/{file} is not what the proto gives: run UPDATE_GENERATED=1 cargo test -p kubelet-plugins --all-features --test plugins proto_generated"
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
