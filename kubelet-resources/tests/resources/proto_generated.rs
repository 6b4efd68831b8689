//! The committed Rust code of these protocols is the code generated from `proto/`.
//!
//! After a change of a proto, run with `UPDATE_GENERATED=1` to regenerate it.

use std::fs;
use std::path::Path;

use tonic_prost_build::{Builder, Config};

/// A protocol of this crate.
struct Protocol {
    proto: &'static str,
    package: &'static str,
    module: &'static str,
    folder: &'static str,
}

const DEVICE_PLUGIN: Protocol = Protocol {
    proto: "deviceplugin/v1beta1/api.proto",
    package: "v1beta1",
    module: "crate::devices::v1beta1",
    folder: "src/devices/v1beta1",
};

const POD_RESOURCES: Protocol = Protocol {
    proto: "podresources/v1/api.proto",
    package: "v1",
    module: "crate::pod_resources::v1",
    folder: "src/pod_resources/v1",
};

const POD_RESOURCES_V1ALPHA1: Protocol = Protocol {
    proto: "podresources/v1alpha1/api.proto",
    package: "v1alpha1",
    module: "crate::pod_resources::v1alpha1",
    folder: "src/pod_resources/v1alpha1",
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Protocol {
    fn generate(&self, builder: Builder, config: Config) -> String {
        let descriptors = protox::compile([self.proto], [root().join("proto")]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        builder
            .out_dir(dir.path())
            .build_transport(false)
            .emit_rerun_if_changed(false)
            .compile_fds_with_config(descriptors, config)
            .unwrap();
        let code = fs::read_to_string(dir.path().join(format!("{}.rs", self.package))).unwrap();
        let proto = self.proto;
        format!("// Made from proto/{proto} by tests/resources/proto_generated.rs. Do not edit.\n\n{code}")
    }

    fn messages(&self) -> String {
        let mut config = Config::new();
        // Maps in order, so that equal messages are equal bytes.
        config.btree_map(["."]);
        let builder = tonic_prost_build::configure();
        self.generate(builder.build_client(false).build_server(false), config)
    }

    /// Only the stubs: the messages are in the module above.
    fn stubs(&self, client: bool) -> String {
        let mut config = Config::new();
        config.extern_path(format!(".{}", self.package), self.module);
        let builder = tonic_prost_build::configure();
        self.generate(builder.build_client(client).build_server(!client), config)
    }

    fn check(&self) {
        for (file, generated) in [
            ("messages.rs", self.messages()),
            ("grpc_client.rs", self.stubs(true)),
            ("grpc_server.rs", self.stubs(false)),
        ] {
            let path = root().join(self.folder).join(file);
            if std::env::var_os("UPDATE_GENERATED").is_some() {
                fs::write(&path, &generated).unwrap();
            }
            let committed = fs::read_to_string(&path).unwrap_or_default();
            let folder = self.folder;
            assert!(
                committed == generated,
                "{folder}/{file} is not what the proto gives: run UPDATE_GENERATED=1 cargo test -p kubelet-resources \
                 --all-features --test resources proto_generated"
            );
        }
    }
}

#[test]
fn device_plugin_is_current() {
    DEVICE_PLUGIN.check();
}

#[test]
fn pod_resources_is_current() {
    POD_RESOURCES.check();
    POD_RESOURCES_V1ALPHA1.check();
}
