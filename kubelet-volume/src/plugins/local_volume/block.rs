//! Disks that containers get as devices.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use kubelet_core::{PodExt, VolumeUsage};

use super::{LocalVolumePlugin, NAME, path_of, reconstructed};
use crate::filesystem::path_error::reason;
use crate::measuring::timed;
use crate::plugins::in_tree::Host;
use crate::{BlockVolumePlugin, OnDisk, PodMount, Result, VolumeSpec};

/// The name of the plugin in paths (`EscapeQualifiedName`).
fn escaped() -> String {
    NAME.replace('/', "~")
}

#[async_trait]
impl BlockVolumePlugin for LocalVolumePlugin {
    fn global_map_path(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        let plugin = self.host.root_dir.path().join("plugins").join(escaped());
        Ok(plugin.join("volumeDevices").join(spec.name()))
    }

    fn pod_device_map_path(&self, mount: &PodMount) -> (PathBuf, String) {
        let pod = self.host.root_dir.pod_dir(&mount.pod.uid());
        let dir = pod.join("volumeDevices").join(escaped());
        (dir, mount.spec.name().to_owned())
    }

    async fn set_up_device(&self, _: &PodMount, _: &str) -> Result<Option<PathBuf>> {
        Ok(None)
    }

    async fn map_pod_device(&self, mount: &PodMount, _: &str) -> Result<PathBuf> {
        Ok(Path::new("/").join(path_of(&mount.spec)?))
    }

    async fn unmap_pod_device(&self, _: &OnDisk) -> Result<()> {
        Ok(())
    }

    async fn tear_down_device(&self, _: &VolumeSpec, _: &Path, _: &str) -> Result<()> {
        Ok(())
    }

    async fn reconstruct_block(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(reconstructed(&found.name, String::new(), "Block"))
    }
}

/// The size of the device (`metrics_block.go`).
pub(super) async fn usage(host: &Host, device: PathBuf) -> Result<VolumeUsage> {
    let measured = host.run(move || {
        let failed = |what: &str, error: &io::Error| {
            let (device, why) = (device.display().to_string(), reason(error));
            io::Error::other(format!("{what} {device:?}: {why}"))
        };
        let mut opened = File::open(&device).map_err(|error| failed("unable to open device", &error))?;
        let end = opened.seek(SeekFrom::End(0));
        end.map_err(|error| failed("failed to detect size of", &error))
    });
    let size = timed("block", measured).await?;
    let mut usage = VolumeUsage::default();
    usage.capacity_bytes = Some(size);
    Ok(host.dated(usage))
}
