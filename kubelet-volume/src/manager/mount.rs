//! Mounts a volume for a pod (`GenerateMountVolumeFunc`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{MountedVolume, PodUid};
use tokio::time::{Instant, timeout};

use super::next_step::Presence;
use super::operation::{ATTACH_PATIENCE, Failure, change, failed, read};
use super::record::VolumeKey;
use super::shared::Shared;
use super::{block, device, expand, metrics, node_affinity, paths};
use crate::plugins::mount_options::with_own;
use crate::{Attributes, Error, PodMount, VolumePlugin, VolumeSource, VolumeSpec};

/// How soon a mount that succeeded is set up again at the earliest, and how much later that may be. The kubelet does it with
/// the sync of the pod (`syncFrequency`, `workerResyncIntervalJitterFactor`). A token can be due all the time: while the API
/// server is down, a plugin gets the old one, and the clock of the node may be fast.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
const AGAIN_JITTER: f64 = 0.5;
/// How many updates of a mount may follow each other. The kubelet sets up again with the sync of the pod only; here a change is in
/// the pod at once, and a storm of changes costs one update a second.
const UPDATE_BURST: u32 = 4;
/// How long a mount rests after each further update.
const UPDATE_REST: Duration = Duration::from_secs(1);

/// What a mount needs, read when it begins.
pub(crate) struct Mounting {
    pub(crate) plugin: Arc<dyn VolumePlugin>,
    pub(crate) mount: PodMount,
    /// The pod's mount before the operation.
    pub(crate) presence: Presence,
    pub(crate) device: Presence,
    pub(crate) has_device: bool,
    pub(crate) attachable: bool,
    pub(crate) device_path: String,
    /// The version of the sources that this operation brings in, at least.
    pub(crate) version: u64,
    /// Another pod has mounted the volume, or may have.
    is_used_elsewhere: bool,
    wanted_since: Instant,
    plugin_name: String,
}

pub(crate) async fn mount(shared: &Shared, key: &VolumeKey, uid: &PodUid) -> Result<(), Failure> {
    let begun = read(shared, key, uid, |record, mount| {
        let of = |uid: &PodUid| record.situation.mounts.get(uid);
        let mut others = record.situation.mounts.iter().filter(|(other, _)| *other != uid);
        Mounting {
            plugin: record.plugin.clone(),
            mount: record.pod_mount(mount, &shared.leases),
            presence: of(uid).map(|mount| mount.presence).unwrap_or_default(),
            device: record.situation.device,
            has_device: record.situation.has_device,
            attachable: record.situation.attachable,
            device_path: record.device_path.clone(),
            version: mount.version,
            is_used_elsewhere: others.any(|(_, other)| other.presence != Presence::Absent),
            wanted_since: mount.wanted_since,
            plugin_name: record.qualified_plugin_name(),
        }
    });
    let Some(mut mounting) = begun else { return Ok(()) };
    let is_remount = mounting.presence == Presence::Mounted;
    let is_block = mounting.mount.spec.is_block();
    if !is_remount {
        change(shared, key, |record| {
            if let Some(mount) = record.situation.mounts.get_mut(uid) {
                mount.presence = Presence::Uncertain;
            }
        });
    }
    let result = match is_block {
        true => block::map(shared, key, uid, &mut mounting).await,
        false => set_up(shared, key, &mut mounting).await,
    };
    match result {
        Ok(done) => {
            if !is_remount {
                let waited = mounting.wanted_since.elapsed();
                metrics::mounted(&mounting.plugin_name, waited);
            }
            mark_mounted(shared, key, uid, &mounting, done);
            Ok(())
        }
        Err(problem) => {
            mark_failed(shared, key, uid, &mounting, &problem);
            Err(problem.failure)
        }
    }
}

/// A mount that succeeded.
pub(crate) struct Done {
    pub(crate) again_at: Option<Instant>,
    pub(crate) volume: MountedVolume,
}

/// A mount that failed.
pub(crate) struct Problem {
    pub(crate) failure: Failure,
    pub(crate) leaves: Leaves,
}

/// What a mount that failed leaves of the pod's mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// The plugin was not asked to mount: what an earlier attempt left is still there.
    AsBefore,
    Nothing,
    /// Something may be mounted.
    Perhaps,
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self {
            leaves: match failure.error.is_uncertain() {
                true => Leaves::Perhaps,
                false => Leaves::Nothing,
            },
            failure,
        }
    }
}

/// The failure of a step before the plugin mounts the volume for the pod.
pub(crate) fn before(what: &'static str) -> impl Fn(Error) -> Problem {
    move |error| Problem {
        failure: Failure::new(what, error),
        leaves: Leaves::AsBefore,
    }
}

async fn set_up(shared: &Shared, key: &VolumeKey, mounting: &mut Mounting) -> Result<Done, Problem> {
    let plugin = mounting.plugin.clone();
    let spec = mounting.mount.spec.clone();
    let affinity = node_affinity::check(&*shared.node, &spec).await;
    affinity.map_err(before("MountVolume.NodeAffinity check failed"))?;
    let prepared = plugin.prepare(&mounting.mount).await;
    prepared.map_err(before("MountVolume.NewMounter initialization failed"))?;
    if !with_own(&spec, &[]).is_empty() && !plugin.supports_mount_options() {
        let error = Error::failed("mount options are not supported for this volume type");
        return Err(before("MountVolume.MountOptionSupport check failed")(error));
    }
    check_one_pod(mounting).map_err(before("MountVolume.SetUp failed"))?;
    wait_for_attach(shared, key, mounting)
        .await
        .map_err(before("MountVolume.WaitForAttach failed"))?;
    if mounting.has_device {
        device::mount(shared, key, mounting).await?;
    }
    let done = plugin.set_up(&mounting.mount).await;
    let done = done.map_err(failed("MountVolume.SetUp failed"))?;

    let path = plugin.path(&mounting.mount);
    if mounting.presence != Presence::Mounted {
        let grown = expand::while_mounting(shared, key, mounting, &path).await;
        grown.map_err(|error| Problem {
            failure: Failure::new("MountVolume.Setup failed while expanding volume", error),
            leaves: Leaves::Perhaps,
        })?;
    }
    Ok(Done {
        again_at: done.again_at,
        volume: mounted_volume(&path, false, plugin.attributes(&mounting.mount), mounting),
    })
}

/// What containers get.
pub(crate) fn mounted_volume(
    path: &Path,
    is_block: bool,
    attributes: Attributes,
    mounting: &Mounting,
) -> MountedVolume {
    let mut volume = MountedVolume::new(path);
    volume.is_block = is_block;
    volume.read_only = attributes.read_only;
    let is_labeled = mounting.mount.selinux_label.is_some();
    volume.selinux_relabel = attributes.managed && attributes.selinux_relabel && !is_labeled;
    volume.inner_name = paths::escaped(mounting.mount.spec.name());
    volume.group = group(&mounting.mount.spec);
    volume
}

/// The group that owns the files of a persistent volume (`getPVVolumeGidAnnotationValue`).
fn group(spec: &VolumeSpec) -> Option<i64> {
    let VolumeSource::Persistent(volume) = &spec.source else {
        return None;
    };
    let annotations = volume.metadata.annotations.as_ref()?;
    annotations.get("pv.beta.kubernetes.io/gid")?.parse().ok()
}

/// The scheduler sees to it, too, that one pod uses a `ReadWriteOncePod` volume at a time.
pub(crate) fn check_one_pod(mounting: &Mounting) -> crate::Result<()> {
    let modes = mounting.mount.spec.persistent_volume();
    let modes = modes
        .and_then(|spec| spec.access_modes.as_deref())
        .unwrap_or_default();
    // With several modes, it is not known which one the pod means.
    let is_for_one_pod = matches!(modes, [mode] if mode == "ReadWriteOncePod");
    if is_for_one_pod && mounting.is_used_elsewhere {
        return Err(Error::failed(
            "volume uses the ReadWriteOncePod access mode and is already in use by another pod",
        ));
    }
    Ok(())
}

/// Waits until the device of an attached volume is there.
pub(crate) async fn wait_for_attach(
    shared: &Shared,
    key: &VolumeKey,
    mounting: &mut Mounting,
) -> crate::Result<()> {
    let Some(attachable) = mounting.plugin.attachable().filter(|_| mounting.attachable) else {
        return Ok(());
    };
    let (spec, pod) = (&mounting.mount.spec, &mounting.mount.pod);
    let waiting = attachable.wait_for_attach(spec, &mounting.device_path, pod);
    let path = timeout(ATTACH_PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| Err(Error::failed("timed out waiting for the volume to be attached")))?;
    mounting.device_path.clone_from(&path);
    change(shared, key, |record| record.device_path = path);
    Ok(())
}

fn mark_mounted(shared: &Shared, key: &VolumeKey, uid: &PodUid, mounting: &Mounting, done: Done) {
    let now = Instant::now();
    let earliest = now + shared.jitter.apply(AGAIN_AFTER, AGAIN_JITTER);
    change(shared, key, |record| {
        if let Some(mount) = record.mounts.get_mut(uid) {
            mount.mounted = Some(done.volume);
            mount.was_found = false;
            let is_newer = mount.version != mounting.version;
            if let Some(situation) = record.situation.mounts.get_mut(uid) {
                let was_mounted = situation.presence == Presence::Mounted;
                situation.presence = Presence::Mounted;
                situation.is_stale = is_newer;
                situation.rests_until = was_mounted.then(|| rest(situation.rests_until, now));
                situation.again_at = done.again_at.map(|at| at.max(earliest));
            }
        }
    });
}

/// When the next update may begin (a token bucket): in the past, until `UPDATE_BURST` updates followed each other.
fn rest(before: Option<Instant>, now: Instant) -> Instant {
    let full = now.checked_sub(UPDATE_REST * (UPDATE_BURST - 1)).unwrap_or(now);
    before.map_or(full, |before| before.max(full)) + UPDATE_REST
}

/// (`markVolumeErrorState`)
fn mark_failed(shared: &Shared, key: &VolumeKey, uid: &PodUid, mounting: &Mounting, problem: &Problem) {
    change(shared, key, |record| {
        let was_found = record.mounts.get(uid).is_some_and(|mount| mount.was_found);
        if let Some(situation) = record.situation.mounts.get_mut(uid) {
            situation.presence = match mounting.presence {
                // It still has what the last operation made.
                Presence::Mounted => Presence::Mounted,
                before => match problem.leaves {
                    Leaves::AsBefore => before,
                    Leaves::Nothing if !was_found => Presence::Absent,
                    Leaves::Nothing | Leaves::Perhaps => Presence::Uncertain,
                },
            };
        }
    });
}
