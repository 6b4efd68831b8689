//! The configuration files of the fixture.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::image::PAUSE;
use super::slot::Slot;
use super::tools::Tools;
use crate::{Error, Result};

/// Plugins that are not needed, or that use files outside of the fixture's folder.
const DISABLED: [&str; 7] = [
    "io.containerd.internal.v1.opt",
    "io.containerd.internal.v1.tracing",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.tracing.processor.v1.otlp",
];

/// The layout of the fixture's folder.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) folder: PathBuf,
}

impl Layout {
    pub(super) fn config(&self) -> PathBuf {
        self.folder.join("config.toml")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("containerd.sock")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("containerd.log")
    }

    /// runc's own records, one folder per containerd namespace.
    pub(super) fn runc_root(&self) -> PathBuf {
        self.folder.join("runc")
    }

    /// For temporary mounts.
    pub(super) fn temp(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    /// The tasks' bundles, one folder per namespace and one per container.
    pub(super) fn bundles(&self) -> PathBuf {
        self.folder.join("state/io.containerd.runtime.v2.task")
    }

    /// One folder per sandbox that was not removed.
    pub(super) fn sandboxes(&self) -> PathBuf {
        self.folder.join("state/io.containerd.grpc.v1.cri/sandboxes")
    }

    fn network_dir(&self) -> PathBuf {
        self.folder.join("net.d")
    }

    fn registries_dir(&self) -> PathBuf {
        self.folder.join("certs.d")
    }

    /// Writes all configuration.
    pub(super) fn write(&self, slot: &Slot, tools: &Tools, host_ports: bool) -> Result<()> {
        let registry = self.registries_dir().join("_default");
        for folder in [&self.temp(), &self.network_dir(), &registry] {
            std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, source))?;
        }
        let write = |path: PathBuf, content: String| {
            std::fs::write(&path, content).map_err(|source| Error::io(&path, source))
        };
        write(self.config(), self.containerd_toml(&tools.cni_bin_dir))?;
        // Nothing listens there, so the pull of any other image fails at once and does not wait for the network.
        write(
            registry.join("hosts.toml"),
            "server = \"http://127.0.0.1:1\"\n".to_owned(),
        )?;
        write(
            self.network_dir().join("10-bridge.conflist"),
            self.conflist(slot, host_ports),
        )
    }

    fn containerd_toml(&self, cni_bin_dir: &Path) -> String {
        let folder = &self.folder;
        let (socket, temp, runc_root) = (self.socket(), self.temp(), self.runc_root());
        let (network_dir, registries_dir) = (self.network_dir(), self.registries_dir());
        format!(
            r#"version = 2
root = {root:?}
state = {state:?}
temp = {temp:?}
disabled_plugins = {DISABLED:?}

[grpc]
address = {socket:?}

# All would listen on one socket of the host.
[plugins."io.containerd.nri.v1.nri"]
disable = true

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {cni_bin_dir:?}
conf_dir = {network_dir:?}

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = {registries_dir:?}

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = {runc_root:?}
"#,
            root = folder.join("root"),
            state = folder.join("state"),
        )
    }

    fn conflist(&self, slot: &Slot, host_ports: bool) -> String {
        let mut list = json!({
            "cniVersion": "1.0.0",
            "name": slot.network(),
            "plugins": [{
                "type": "bridge",
                "bridge": slot.network(),
                "isGateway": true,
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": self.folder.join("addresses"),
                    "ranges": [[{ "subnet": slot.subnet() }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            }],
        });
        if host_ports {
            let portmap =
                json!({ "type": "portmap", "capabilities": { "portMappings": true }, "snat": false });
            if let Some(plugins) = list["plugins"].as_array_mut() {
                plugins.push(portmap);
            }
        }
        list.to_string()
    }
}
