//! Block devices for pods: links to the device in the folders of the pod and of the plugin (`GenerateMapVolumeFunc`).

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use kubelet_core::PodUid;

use super::mount::{Done, Leaves, Mounting, Problem, before, check_one_pod, mounted_volume, wait_for_attach};
use super::next_step::Presence;
use super::operation::{Failure, change, failed};
use super::record::VolumeKey;
use super::shared::Shared;
use super::{device, expand, node_affinity};
use crate::{Attributes, BlockVolumePlugin, Error, OnDisk, PodMount, VolumePlugin, VolumeSpec};

/// The folders of the links can be read by root alone.
const DIR_MODE: u32 = 0o750;

/// Maps the volume for the pod, and before that for the node.
pub(crate) async fn map(
    shared: &Shared,
    key: &VolumeKey,
    uid: &PodUid,
    mounting: &mut Mounting,
) -> Result<Done, Problem> {
    let plugin = mounting.plugin.clone();
    let spec = mounting.mount.spec.clone();
    let block = mapper(&*plugin).map_err(before("MapVolume.FindMapperPluginBySpec failed"))?;
    let affinity = node_affinity::check(&*shared.node, &spec).await;
    affinity.map_err(before("MapVolume.NodeAffinity check failed"))?;
    check_one_pod(mounting).map_err(before("MapVolume.SetUpDevice failed"))?;
    let global = block.global_map_path(&spec);
    let global = global.map_err(before("MapVolume.GetGlobalMapPath failed"))?;
    mounting.mount.device_mount_path = Some(global.clone());
    wait_for_attach(shared, key, mounting)
        .await
        .map_err(before("MapVolume.WaitForAttach failed"))?;
    if mounting.device != Presence::Mounted {
        change(shared, key, |record| {
            record.device_mount_path = Some(global.clone());
            record.situation.device = Presence::Uncertain;
        });
        let prepared = block.set_up_device(&mounting.mount, &mounting.device_path).await;
        device::mark(shared, key, mounting, prepared.as_ref().err());
        prepared.map_err(before("MapVolume.SetUpDevice failed"))?;
    }
    let mapped = block.map_pod_device(&mounting.mount, &mounting.device_path).await;
    let mapped = mapped.map_err(failed("MapVolume.MapPodDevice failed"))?;

    // From here on, the plugin has mapped the device: it is unmapped even if the links fail.
    let after = |what| {
        move |error| Problem {
            failure: Failure::new(what, error),
            leaves: Leaves::Perhaps,
        }
    };
    let path = match mapped.as_os_str().is_empty() {
        true => PathBuf::from(&mounting.device_path),
        false => mapped,
    };
    if path.as_os_str().is_empty() {
        return Err(after("MapVolume failed")(Error::failed(
            "device path of the volume is empty",
        )));
    }
    let found = path.clone();
    let found = shared.disk.run(move || fs::canonicalize(found)).await;
    let path = found.map_err(|error| after("MapVolume.EvalHostSymlinks failed")(Error::io(&path, error)))?;
    // The attachment named the device before; it is known only now.
    mounting.device_path = path.display().to_string();
    change(shared, key, |record| {
        record.device_path.clone_from(&mounting.device_path);
    });
    let (folder, name) = block.pod_device_map_path(&mounting.mount);
    link(shared, &path, &global, &folder, &name, uid)
        .await
        .map_err(after("MapVolume.MapBlockVolume failed"))?;
    announce(shared, mounting, &format!("globalMapPath {global:?}"));
    announce(shared, mounting, &format!("volumeMapPath {folder:?}"));
    expand::while_mounting(shared, key, mounting, &path)
        .await
        .map_err(after(
            "MapVolume.MarkVolumeAsMounted failed while expanding volume",
        ))?;

    let attributes = Attributes {
        read_only: spec.read_only,
        ..Attributes::default()
    };
    Ok(Done {
        again_at: None,
        volume: mounted_volume(&folder.join(name), true, attributes, mounting),
    })
}

fn announce(shared: &Shared, mounting: &Mounting, what: &str) {
    let volume = mounting.mount.spec.name();
    let message = format!("MapVolume.MapPodDevice succeeded for volume {volume:?} {what}");
    shared.inform(&mounting.mount.pod, "SuccessfulMountVolume", &message);
}

fn mapper(plugin: &dyn VolumePlugin) -> crate::Result<&dyn BlockVolumePlugin> {
    plugin
        .block()
        .ok_or_else(|| Error::failed(format!("the plugin {} has no block devices", plugin.name())))
}

/// Undoes [`map`] for a pod (`GenerateUnmapVolumeFunc`).
pub(crate) async fn unmap(
    shared: &Shared,
    plugin: &dyn VolumePlugin,
    mount: &PodMount,
    on_disk: &OnDisk,
) -> Result<(), Failure> {
    let block = mapper(plugin).map_err(failed("UnmapVolume.FindMapperPluginByName failed"))?;
    let (folder, name) = block.pod_device_map_path(mount);
    let global = block.global_map_path(&mount.spec);
    let global = global.map_err(failed("UnmapVolume.GetGlobalMapPath failed"))?;
    unlink(shared, &global, &folder.join(name), &on_disk.uid)
        .await
        .map_err(failed("UnmapVolume.UnmapBlockVolume failed"))?;
    block
        .unmap_pod_device(on_disk)
        .await
        .map_err(failed("UnmapVolume.UnmapPodDevice failed"))
}

/// Undoes [`map`] for the node (`GenerateUnmapDeviceFunc`).
pub(crate) async fn tear_down(
    shared: &Shared,
    plugin: &dyn VolumePlugin,
    spec: &VolumeSpec,
    global: Option<PathBuf>,
    device_path: &str,
) -> Result<(), Failure> {
    let block = mapper(plugin).map_err(failed("UnmapDevice.FindMapperPluginByName failed"))?;
    let global = match global {
        Some(global) => global,
        None => block
            .global_map_path(spec)
            .map_err(failed("UnmapVolume.GetGlobalMapPath failed"))?,
    };
    let listed = global.clone();
    let pods = shared.disk.run(move || entries(&listed)).await;
    let pods = pods.map_err(|error| {
        Failure::new(
            "UnmapDevice.GetDeviceBindMountRefs check failed",
            Error::io(&global, error),
        )
    })?;
    if !pods.is_empty() {
        let error = Error::failed(format!(
            "the device {global:?} is still referenced from other Pods [{}]",
            pods.join(" ")
        ));
        return Err(Failure::new("UnmapDevice failed", error));
    }
    block
        .tear_down_device(spec, &global, device_path)
        .await
        .map_err(failed("UnmapDevice.TearDownDevice failed"))?;
    let removed = global.clone();
    let removing = shared
        .disk
        .run(move || missing_is_fine(fs::remove_dir_all(removed)));
    removing
        .await
        .map_err(|error| Failure::new("UnmapDevice.RemoveMapPath failed", Error::io(&global, error)))
}

/// (`util.MapBlockVolume`)
async fn link(
    shared: &Shared,
    device: &Path,
    global: &Path,
    folder: &Path,
    name: &str,
    uid: &PodUid,
) -> crate::Result<()> {
    let of_pod = global.join(uid.as_str());
    let (folders, file) = ([global.to_owned(), folder.to_owned()], of_pod.clone());
    let prepare = move || {
        for folder in folders {
            DirBuilder::new().recursive(true).mode(DIR_MODE).create(folder)?;
        }
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .map(drop)
    };
    shared
        .disk
        .run(prepare)
        .await
        .map_err(|error| Error::io(&of_pod, error))?;
    // The link comes before the mount: by the link, the next agent finds what one that was killed here has mounted.
    let (link, target) = (folder.join(name), device.to_owned());
    let path = link.clone();
    let linking = shared.disk.run(move || {
        missing_is_fine(fs::remove_file(&link))?;
        symlink(target, link)
    });
    linking.await.map_err(|error| Error::io(path, error))?;
    let mounter = shared.mounter()?;
    if mounter.is_mount_point(&of_pod).await? {
        return Ok(());
    }
    let source = device.display().to_string();
    mounter.mount(&source, &of_pod, "", &["bind".to_owned()]).await
}

/// (`util.UnmapBlockVolume`)
async fn unlink(shared: &Shared, global: &Path, link: &Path, uid: &PodUid) -> crate::Result<()> {
    let of_pod = global.join(uid.as_str());
    let mounter = shared.mounter()?;
    if mounter.is_mount_point(&of_pod).await? {
        mounter.unmount(&of_pod).await?;
    }
    let removed = [of_pod, link.to_owned()];
    let removing = shared.disk.run(move || {
        for path in &removed {
            missing_is_fine(fs::remove_file(path))?;
        }
        Ok(())
    });
    removing.await.map_err(|error| Error::io(link, error))
}

fn missing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn entries(dir: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
