//! The committed Rust code of the pods API is the code generated from `proto/pods/v1alpha1/api.proto`.
//!
//! After a change of the proto, run with `UPDATE_GENERATED=1` to regenerate it.

use std::fs;
use std::path::Path;

use tonic_prost_build::{Builder, Config};

const HEADER: &str =
    "// Made from proto/pods/v1alpha1/api.proto by tests/server/pods_proto_generated.rs. Do not edit.\n\n";

fn generate(builder: Builder, config: Config) -> String {
    let folder = tempfile::tempdir().unwrap();
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let descriptors = protox::compile(["pods/v1alpha1/api.proto"], [proto]).unwrap();
    builder
        .out_dir(folder.path())
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(descriptors, config)
        .unwrap();
    HEADER.to_owned() + &fs::read_to_string(folder.path().join("v1alpha1.rs")).unwrap()
}

/// Only the stubs: the messages are in a module of their own.
fn stubs(client: bool) -> String {
    let mut config = Config::new();
    config.extern_path(".v1alpha1", "crate::pods_api::v1alpha1");
    let builder = tonic_prost_build::configure()
        .build_client(client)
        .build_server(!client);
    generate(builder, config)
}

fn check(file: &str, generated: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pods_api/v1alpha1");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(folder.join(file), generated).unwrap();
    }
    let committed = fs::read_to_string(folder.join(file)).unwrap_or_default();
    assert!(
        committed == generated,
        "src/pods_api/v1alpha1/{file} is not what the proto gives: run UPDATE_GENERATED=1 cargo test -p kubelet-server --all-features --test server pods_proto_generated"
    );
}

#[test]
fn messages_are_current() {
    let builder = tonic_prost_build::configure()
        .build_client(false)
        .build_server(false);
    check("messages.rs", &generate(builder, Config::new()));
}

#[test]
fn client_is_current() {
    check("grpc_client.rs", &stubs(true));
}

#[test]
fn server_is_current() {
    check("grpc_server.rs", &stubs(false));
}
