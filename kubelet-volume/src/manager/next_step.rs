//! Decides what to do next for one volume: a pure function of its situation (the kubelet's `reconciler.reconcile`, for one
//! volume).

use std::collections::BTreeMap;

use kubelet_core::PodUid;
use tokio::time::Instant;

use super::back_off::{BackOff, Kind};

/// What is known of one volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Situation {
    /// It must be attached to the node.
    pub(crate) attachable: bool,
    /// It is attached, or was when an earlier agent mounted it.
    pub(crate) attached: bool,
    /// The status of the node in the API server lists it as in use.
    pub(crate) reported_in_use: bool,
    /// The node mounts or maps it once for all pods.
    pub(crate) has_device: bool,
    /// Whether the node has mounted or mapped it.
    pub(crate) device: Presence,
    /// A pod may use the device that is not among the mounts.
    pub(crate) device_is_held: bool,
    /// The device is mounted with another SELinux context than the pods want.
    pub(crate) device_is_unfit: bool,
    /// The mounts of pods that want it, or for which something is mounted.
    pub(crate) mounts: BTreeMap<PodUid, MountSituation>,
    /// An operation is running.
    pub(crate) is_busy: bool,
    /// The file system is smaller than the volume.
    pub(crate) must_grow: bool,
    /// The wait of operations that are not about one pod.
    pub(crate) back_off: BackOff,
}

/// What is known of one pod's mount.
#[derive(Clone, Debug, Default)]
pub(crate) struct MountSituation {
    pub(crate) wanted: Wanted,
    pub(crate) presence: Presence,
    /// It is mounted, but must be set up again.
    pub(crate) is_stale: bool,
    /// It was set up again several times in a row. Further changes wait until this time, so that a storm of changes is few updates.
    pub(crate) rests_until: Option<Instant>,
    /// When it must be set up again.
    pub(crate) again_at: Option<Instant>,
    /// An operation of another volume is removing its folder: one that could not be reconstructed.
    pub(crate) waits_for_folder: bool,
    pub(crate) back_off: BackOff,
}

/// Whether a pod wants a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A pod that may run uses it.
    Yes,
    /// The pod has ended.
    No,
    /// Found on disk. Nobody has reported yet whether its pod still runs, so it stays as it is.
    #[default]
    Unknown,
}

/// Whether something is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    #[default]
    Absent,
    /// An operation failed half-way, or an earlier agent mounted it. It is unmounted as if it were mounted, and mounted as
    /// if it were not.
    Uncertain,
    Mounted,
}

/// What to do for a volume. Operations of one volume run one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until the situation changes.
    Rest,
    /// Nothing until this time.
    WaitUntil(Instant),
    /// Check that the controller has attached it.
    VerifyAttached,
    /// Attach it to the node.
    Attach,
    /// Mount it for this pod, and before that for the node if it is not. If it is mounted, set it up again.
    Mount(PodUid),
    /// Unmount it for this pod.
    TearDown(PodUid),
    /// Grow its file system, which is mounted for this pod.
    Expand(PodUid),
    /// Unmount it for the node.
    UnmountDevice,
    /// Detach it from the node.
    Detach,
    /// Nothing of it is left, and no pod wants it.
    Forget,
}

/// The next step. `controller_attaches`: volumes are attached and detached by the attach-detach controller.
pub(crate) fn next_step(volume: &Situation, controller_attaches: bool, now: Instant) -> Step {
    if volume.is_busy {
        return Step::Rest;
    }
    let mut waits = Waits { now, earliest: None };

    // What ended pods leave goes first: another pod may wait until the volume is free.
    for (uid, mount) in &volume.mounts {
        let is_left = mount.wanted == Wanted::No && mount.presence != Presence::Absent;
        if is_left && !mount.waits_for_folder && waits.may_start(&mount.back_off, Kind::TearDown) {
            return Step::TearDown(uid.clone());
        }
    }
    if volume.mounts.values().any(|mount| mount.wanted == Wanted::Yes) {
        if volume.device_is_unfit {
            let is_free = !volume.device_is_held
                && volume
                    .mounts
                    .values()
                    .all(|mount| mount.presence == Presence::Absent);
            let may_start = is_free && waits.may_start(&volume.back_off, Kind::UnmountDevice);
            return waits.or(may_start.then_some(Step::UnmountDevice));
        }
        let step = step_to_mount(volume, controller_attaches, &mut waits);
        return waits.or(step);
    }
    let is_free = |mount: &MountSituation| mount.wanted == Wanted::No && mount.presence == Presence::Absent;
    if !volume.mounts.values().all(is_free) {
        return waits.or(None);
    }
    if volume.has_device && volume.device != Presence::Absent {
        let may_start = !volume.device_is_held && waits.may_start(&volume.back_off, Kind::UnmountDevice);
        return waits.or(may_start.then_some(Step::UnmountDevice));
    }
    if volume.attachable && volume.attached && !controller_attaches {
        let may_start = waits.may_start(&volume.back_off, Kind::Detach);
        return waits.or(may_start.then_some(Step::Detach));
    }
    Step::Forget
}

/// Some pod wants the volume (`mountOrAttachVolumes`).
fn step_to_mount(volume: &Situation, controller_attaches: bool, waits: &mut Waits) -> Option<Step> {
    if volume.attachable && !volume.attached {
        return match controller_attaches {
            // The controller must not detach what this node is about to mount.
            true if !volume.reported_in_use => None,
            true => waits
                .may_start(&volume.back_off, Kind::VerifyAttached)
                .then_some(Step::VerifyAttached),
            false => waits
                .may_start(&volume.back_off, Kind::Attach)
                .then_some(Step::Attach),
        };
    }
    let wanted = || {
        volume
            .mounts
            .iter()
            .filter(|(_, mount)| mount.wanted == Wanted::Yes && !mount.waits_for_folder)
    };
    // Pods that wait to start go before pods that run.
    for (uid, mount) in wanted() {
        if mount.presence != Presence::Mounted && waits.may_start(&mount.back_off, Kind::Mount) {
            return Some(Step::Mount(uid.clone()));
        }
    }
    for (uid, mount) in wanted().filter(|(_, mount)| mount.presence == Presence::Mounted) {
        let may_update = mount.is_stale && mount.rests_until.is_none_or(|at| waits.has_come(at));
        let is_due = may_update || mount.again_at.is_some_and(|at| waits.has_come(at));
        if is_due && waits.may_start(&mount.back_off, Kind::Mount) {
            return Some(Step::Mount(uid.clone()));
        }
    }
    let (uid, _) = wanted().find(|(_, mount)| mount.presence == Presence::Mounted)?;
    let grows = volume.must_grow && waits.may_start(&volume.back_off, Kind::Expand);
    grows.then(|| Step::Expand(uid.clone()))
}

/// Collects the earliest time at which something can be done.
struct Waits {
    now: Instant,
    earliest: Option<Instant>,
}

impl Waits {
    fn may_start(&mut self, back_off: &BackOff, kind: Kind) -> bool {
        match back_off.until(kind, self.now) {
            Some(until) => self.has_come(until),
            None => true,
        }
    }

    fn has_come(&mut self, at: Instant) -> bool {
        let has_come = at <= self.now;
        if !has_come {
            self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
        }
        has_come
    }

    fn or(&self, step: Option<Step>) -> Step {
        step.unwrap_or(self.earliest.map_or(Step::Rest, Step::WaitUntil))
    }
}

#[cfg(test)]
mod tests;
