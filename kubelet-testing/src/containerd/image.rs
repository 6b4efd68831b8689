//! The images of the fixture, made from the host's static busybox.

use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::process::Command;

use super::command::output;
use super::tar::TarWriter;
use crate::{Error, Result};

/// The image for containers: busybox with all its applets.
pub(super) const BUSYBOX: &str = "docker.io/library/busybox:1.36";
/// The image for sandboxes, with the same files. Its process sleeps, ends on SIGTERM, and reaps orphans, as the first
/// process of a shared PID namespace must.
pub(super) const PAUSE: &str = "localhost/kubelet-testing/pause:1";

const PAUSE_COMMAND: [&str; 3] = [
    "/bin/sh",
    "-c",
    "trap 'exit 0' TERM INT; while :; do sleep 2147483647 & wait; done",
];

/// Writes both images into `folder` as one docker archive for `ctr images import`, and returns its path.
pub(super) async fn write_archive(folder: &Path, busybox: &Path) -> Result<PathBuf> {
    let layer = layer(busybox).await?;
    let layer_path = folder.join("layer.tar");
    write(&layer_path, &layer)?;
    let sum = output(Command::new(busybox).arg("sha256sum").arg(&layer_path)).await?;
    let diff_id = format!("sha256:{}", sum.split(' ').next().unwrap_or_default());

    let config = |command: &[&str]| {
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Cmd": command,
            },
            "rootfs": { "type": "layers", "diff_ids": [diff_id] },
        })
    };
    let image =
        |config: &str, name: &str| json!({ "Config": config, "RepoTags": [name], "Layers": ["layer.tar"] });
    let manifest = json!([image("busybox.json", BUSYBOX), image("pause.json", PAUSE)]);

    let mut archive = TarWriter::default();
    archive.file("manifest.json", 0o644, manifest.to_string().as_bytes());
    archive.file("busybox.json", 0o644, config(&["sh"]).to_string().as_bytes());
    archive.file("pause.json", 0o644, config(&PAUSE_COMMAND).to_string().as_bytes());
    archive.file("layer.tar", 0o644, &layer);
    let path = folder.join("images.tar");
    write(&path, &archive.finish())?;
    Ok(path)
}

/// The file system of both images.
async fn layer(busybox: &Path) -> Result<Vec<u8>> {
    let program = std::fs::read(busybox).map_err(|source| Error::io(busybox, source))?;
    let mut tar = TarWriter::default();
    for folder in [
        "bin/", "dev/", "etc/", "home/", "proc/", "root/", "sys/", "usr/", "var/",
    ] {
        tar.directory(folder, 0o755);
    }
    tar.directory("tmp/", 0o1777);
    tar.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n",
    );
    tar.file(
        "etc/group",
        0o644,
        b"root:x:0:\nstaff:x:50:nobody\nnogroup:x:65534:\n",
    );
    tar.file("bin/busybox", 0o755, &program);
    for applet in output(Command::new(busybox).arg("--list")).await?.lines() {
        if applet != "busybox" {
            tar.symlink(&format!("bin/{applet}"), "busybox");
        }
    }
    Ok(tar.finish())
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    std::fs::write(path, content).map_err(|source| Error::io(path, source))
}

/// The architecture of this host, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}
