//! Finds what an earlier agent mounted, from what lies on disk and without an API server (`reconstructVolumes`).

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kubelet_core::PodUid;
use tokio::time::{Instant, timeout};

use super::next_step::Presence;
use super::record::{Record, VolumeKey, unknown_spec};
use super::resolve::{Identified, Resolved, identify};
use super::selinux::MountContext;
use super::shared::Shared;
use super::{metrics, paths};
use crate::{Error, OnDisk, VolumePlugin, VolumeSpec};

/// How long a plugin may take for one volume. Then only the folder of the volume is known.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many volumes are reconstructed at the same time.
const AT_ONCE: usize = 16;

/// A volume's folder, and the name of the plugin that it is below.
type Listed = (String, OnDisk);

/// Reads all pods' folders, and the devices that plugins have mounted for the node.
pub(crate) async fn read_all(shared: &Shared) {
    let pods = shared.root_dir.pods_dir();
    let listing = shared.disk.run(move || {
        let uids = fs::read_dir(pods).into_iter().flatten().flatten();
        let uids = uids.filter_map(|entry| entry.file_name().to_str().map(PodUid::new));
        Ok(uids.collect::<Vec<_>>())
    });
    let mut found = Vec::new();
    for uid in listing.await.unwrap_or_default() {
        found.extend(list(shared, &uid).await);
    }
    add(shared, found).await;
    for plugin in &shared.resolver.plugins {
        read_devices(shared, plugin).await;
    }
    let mut state = shared.state.lock();
    let keys: Vec<VolumeKey> = state.records.keys().cloned().collect();
    state.dirty.extend(keys);
    state.attached_is_known = !state.records.values().any(|record| record.situation.has_device);
    state.is_read = true;
    state.note_in_use();
}

/// Reads the folder of one pod again, and adds what is not known. Returns whether there was something.
pub(crate) async fn read_pod(shared: &Shared, uid: &PodUid) -> bool {
    let mut found = list(shared, uid).await;
    {
        let state = shared.state.lock();
        let known: Vec<_> = state
            .records
            .values()
            .filter_map(|record| Some(record.mounts.get(uid)?.on_disk.dir.clone()))
            .collect();
        found.retain(|(plugin, on_disk)| {
            !known.contains(&on_disk.dir) && shared.resolver.plugin_named(plugin).is_some()
        });
    }
    let is_some = !found.is_empty();
    add(shared, found).await;
    is_some
}

/// The folders of volumes of a pod: `<pod>/volumes/<plugin>/<volume>`, and the same below `volumeDevices`.
async fn list(shared: &Shared, uid: &PodUid) -> Vec<Listed> {
    let (dir, of) = (shared.root_dir.pod_dir(uid), uid.clone());
    let listing = shared.disk.run(move || {
        let mut found = Vec::new();
        for (folder, is_block) in [(paths::VOLUMES, false), (paths::VOLUME_DEVICES, true)] {
            for plugin in names(&dir.join(folder)) {
                let plugin_dir = dir.join(folder).join(&plugin);
                for name in names(&plugin_dir) {
                    let on_disk = OnDisk {
                        uid: of.clone(),
                        dir: plugin_dir.join(&name),
                        name,
                        is_block,
                    };
                    found.push((paths::plugin_of_folder(&plugin), on_disk));
                }
            }
        }
        Ok(found)
    });
    listing.await.unwrap_or_default()
}

/// The names in a folder. Reads no metadata of its entries: a file system whose server is gone would hang.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// Adds what was found to the state.
async fn add(shared: &Shared, found: Vec<Listed>) {
    let reading = found.into_iter().map(|(plugin, on_disk)| async move {
        let Some(plugin) = shared.resolver.plugin_named(&plugin) else {
            tracing::warn!(plugin, dir = %on_disk.dir.display(), "Found a volume of an unknown plugin");
            metrics::reconstructed(false);
            return None;
        };
        let read = timeout(PATIENCE, reconstruct(&*plugin, &on_disk)).await;
        let read = read.unwrap_or_else(|_| Err(Error::failed("no answer in time")));
        metrics::reconstructed(read.is_ok());
        Some((plugin, on_disk, read))
    });
    let mut reading = futures::stream::iter(reading).buffer_unordered(AT_ONCE);
    while let Some(read) = reading.next().await {
        if let Some((plugin, on_disk, read)) = read {
            add_one(shared, plugin, on_disk, read);
        }
    }
}

async fn reconstruct(plugin: &dyn VolumePlugin, found: &OnDisk) -> crate::Result<(VolumeSpec, Identified)> {
    let spec = match (found.is_block, plugin.block()) {
        (false, _) => plugin.reconstruct(found).await?,
        (true, Some(block)) => block.reconstruct_block(found).await?,
        (true, None) => {
            let plugin = plugin.name();
            return Err(Error::failed(format!("the plugin {plugin} has no block devices")));
        }
    };
    let identified = identify(plugin, &spec, &found.uid).await?;
    Ok((spec, identified))
}

fn add_one(
    shared: &Shared,
    plugin: Arc<dyn VolumePlugin>,
    on_disk: OnDisk,
    read: crate::Result<(VolumeSpec, Identified)>,
) {
    let now = Instant::now();
    let mut state = shared.state.lock();
    let is_unknown = read.is_err();
    let (spec, key, has_device) = match read {
        Ok((spec, identified)) => (Arc::new(spec), identified.key, identified.has_device),
        Err(error) => {
            tracing::warn!(%error, dir = %on_disk.dir.display(), "Cannot find out what an earlier agent mounted");
            let key: VolumeKey = format!("{}/{}-{}", plugin.name(), on_disk.uid, on_disk.name).into();
            (unknown_spec(&on_disk.name), key, false)
        }
    };
    let record = state
        .records
        .entry(key.clone())
        .or_insert_with(|| found_record(plugin, spec.clone(), has_device, on_disk.is_block));
    if !record.mounts.contains_key(&on_disk.uid) {
        record.find(on_disk, spec, is_unknown, now);
    }
    state.dirty.insert(key);
}

/// A volume that was mounted was attached. Whether it has to be, the API server says.
fn found_record(
    plugin: Arc<dyn VolumePlugin>,
    spec: Arc<VolumeSpec>,
    has_device: bool,
    is_block: bool,
) -> Record {
    let global = plugin
        .block()
        .filter(|_| is_block)
        .map(|block| block.global_map_path(&spec));
    let device = plugin
        .device_mountable()
        .map(|device| device.device_mount_path(&spec));
    let mut record = Record::new(&Resolved {
        outer_name: String::new(),
        key: "".into(),
        plugin,
        spec,
        is_block,
        attachable: false,
        has_device,
        sizes: None,
        context: MountContext::default(),
    });
    if has_device {
        record.situation.attached = true;
        record.device_mount_path = global.or(device).and_then(Result::ok);
        // Without a path the plugin mounted nothing for the node: the volume is a folder of the host.
        if record.device_mount_path.is_some() {
            record.situation.device = Presence::Uncertain;
            record.device_was_found = true;
        }
    }
    record
}

/// Adds the devices that no pod's folder shows: an earlier agent was stopped before it unmounted them.
async fn read_devices(shared: &Shared, plugin: &Arc<dyn VolumePlugin>) {
    let Some(device) = plugin.device_mountable() else {
        return;
    };
    let mounted = timeout(PATIENCE, device.mounted_devices()).await;
    let mounted = match mounted.unwrap_or_else(|_| Err(Error::failed("no answer in time"))) {
        Ok(mounted) => mounted,
        Err(error) => {
            tracing::warn!(%error, plugin = plugin.name(), "Cannot list the mounted devices of a plugin");
            return;
        }
    };
    for spec in mounted {
        let Ok(identified) = identify(&**plugin, &spec, &PodUid::from("")).await else {
            continue;
        };
        let mut state = shared.state.lock();
        let is_block = spec.is_block();
        state
            .records
            .entry(identified.key)
            .or_insert_with(|| found_record(plugin.clone(), Arc::new(spec), identified.has_device, is_block));
    }
}

/// Reads which of the found volumes are attached, and their devices (`updateReconstructedFromNodeStatus`).
pub(crate) async fn read_attached(shared: &Shared) -> crate::Result<()> {
    let attached = shared.objects.attached().await?;
    let mut state = shared.state.lock();
    for (name, path) in attached {
        if let Some(record) = state.records.get_mut(name.as_str())
            && record.device_was_found
        {
            record.situation.attachable = true;
            record.device_path = path;
        }
    }
    state.attached_is_known = true;
    state.note_in_use();
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::InTreePlugins;
    use crate::manager::next_step::{Step, next_step};

    #[test]
    fn a_folder_of_the_host_leaves_no_device_to_unmount() {
        let root = tempfile::tempdir().unwrap();
        let plugins = InTreePlugins::new(root.path()).build();
        let is_local = |plugin: &&Arc<dyn VolumePlugin>| plugin.name() == "kubernetes.io/local-volume";
        let plugin = plugins.iter().find(is_local).unwrap();
        let volume = json!({"metadata": {"name": "pv"}, "spec": {"local": {"path": ""}}});
        let volume = Arc::new(serde_json::from_value(volume).unwrap());
        let spec = Arc::new(VolumeSpec::persistent(volume, false));
        let record = found_record(plugin.clone(), spec, true, false);
        assert_eq!(next_step(&record.situation, true, Instant::now()), Step::Forget);
    }
}
