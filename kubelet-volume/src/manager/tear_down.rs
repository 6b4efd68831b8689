//! Unmounts a volume for a pod (`GenerateUnmountVolumeFunc`).

use kubelet_core::{PodUid, clean_volume_sub_paths};

use super::next_step::Presence;
use super::operation::{Failure, change, failed, read};
use super::record::VolumeKey;
use super::shared::Shared;
use super::{block, metrics};
use crate::Error;

pub(crate) async fn tear_down(shared: &Shared, key: &VolumeKey, uid: &PodUid) -> Result<(), Failure> {
    let begun = read(shared, key, uid, |record, mount| {
        let mut names = mount.outer_names.clone();
        names.push(mount.on_disk.name.clone());
        (
            record.plugin.clone(),
            mount.on_disk.clone(),
            record.pod_mount(mount, &shared.leases),
            names,
            mount.is_unknown,
        )
    });
    let Some((plugin, on_disk, mount, names, is_unknown)) = begun else {
        return Ok(());
    };
    // The engine has marked it as uncertain. If it fails half-way, it is retried, and a pod that wants the volume sets it
    // up again.
    let result = async {
        let root = shared.root_dir.clone();
        let of = uid.clone();
        let cleaning = shared.disk.run(move || {
            names
                .iter()
                .try_for_each(|name| clean_volume_sub_paths(&root, &of, name))
        });
        let cleaned = cleaning.await;
        cleaned.map_err(|error| {
            let dir = shared.root_dir.pod_volume_subpaths_dir(uid);
            Failure::new("error cleaning subPath mounts", Error::io(dir, error))
        })?;
        if on_disk.is_block {
            return block::unmap(shared, &*plugin, &mount, &on_disk).await;
        }
        let done = plugin.tear_down(&on_disk).await;
        done.map_err(failed("UnmountVolume.TearDown failed"))
    };
    let result = result.await;
    if is_unknown {
        metrics::force_cleaned(result.is_ok());
    }
    result?;
    change(shared, key, |record| {
        if let Some(situation) = record.situation.mounts.get_mut(uid) {
            situation.presence = Presence::Absent;
            situation.is_stale = false;
            situation.again_at = None;
        }
        if let Some(mount) = record.mounts.get_mut(uid) {
            mount.was_found = false;
            mount.mounted = None;
        }
    });
    Ok(())
}
