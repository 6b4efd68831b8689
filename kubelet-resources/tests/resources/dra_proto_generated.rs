//! The committed Rust code of the protocols of DRA plugins is the code generated from `proto/dra` and `proto/dra_health`.
//!
//! After a change of a proto, run with `UPDATE_GENERATED=1` to regenerate it.

use std::fs;
use std::path::{Path, PathBuf};

use tonic_prost_build::{Builder, Config};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generate(proto: &str, package: &str, builder: Builder, mut config: Config) -> String {
    let dir = tempfile::tempdir().unwrap();
    let descriptors = protox::compile([proto], [root().join("proto")]).unwrap();
    config.btree_map(["."]);
    builder
        .out_dir(dir.path())
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(descriptors, config)
        .unwrap();
    let header =
        format!("// Made from proto/{proto} by tests/resources/dra_proto_generated.rs. Do not edit.\n\n");
    header + &fs::read_to_string(dir.path().join(format!("{package}.rs"))).unwrap()
}

fn messages(proto: &str, package: &str) -> String {
    let builder = tonic_prost_build::configure()
        .build_client(false)
        .build_server(false);
    generate(proto, package, builder, Config::new())
}

/// Only the stubs: the messages are in the module `of_messages`.
fn stubs(proto: &str, package: &str, of_messages: &str, client: bool) -> String {
    let mut config = Config::new();
    config.extern_path(format!(".{package}"), of_messages);
    let builder = tonic_prost_build::configure()
        .build_client(client)
        .build_server(!client);
    generate(proto, package, builder, config)
}

fn check(file: &str, generated: &str) {
    let path: PathBuf = root().join("src/dra").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "src/dra/{file} is not what the proto gives: run UPDATE_GENERATED=1 cargo test -p kubelet-resources --all-features --test resources dra_proto_generated"
    );
}

const V1: (&str, &str) = ("dra/v1/api.proto", "k8s.io.kubelet.pkg.apis.dra.v1");
const V1BETA1: (&str, &str) = ("dra/v1beta1/api.proto", "k8s.io.kubelet.pkg.apis.dra.v1beta1");
const HEALTH: (&str, &str) = ("dra_health/v1alpha1/api.proto", "v1alpha1");

#[test]
fn messages_are_current() {
    check("v1/messages.rs", &messages(V1.0, V1.1));
    check("health_v1alpha1/messages.rs", &messages(HEALTH.0, HEALTH.1));
}

#[test]
fn stubs_are_current() {
    for (folder, (proto, package), of_messages) in [
        ("v1", V1, "crate::dra::v1"),
        ("v1beta1", V1BETA1, "crate::dra::v1"),
        ("health_v1alpha1", HEALTH, "crate::dra::health_v1alpha1"),
    ] {
        for (file, client) in [("grpc_client.rs", true), ("grpc_server.rs", false)] {
            check(
                &format!("{folder}/{file}"),
                &stubs(proto, package, of_messages, client),
            );
        }
    }
}

/// `v1beta1` uses the messages of `v1`: they differ by the share of a device alone.
#[test]
fn both_versions_have_the_same_fields() {
    let fields = |(proto, _): (&str, &str)| -> Vec<String> {
        let text = fs::read_to_string(root().join("proto").join(proto)).unwrap();
        let lines = text.lines().map(str::trim);
        lines
            .filter(|line| line.contains(" = ") && !line.starts_with("//") && !line.contains("syntax"))
            .map(ToOwned::to_owned)
            .collect()
    };
    let mut v1 = fields(V1);
    v1.retain(|line| line != "optional string share_id = 5;");
    assert_eq!(v1, fields(V1BETA1));
}
