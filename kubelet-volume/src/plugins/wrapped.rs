//! Volumes of files that the agent writes: they are in an `emptyDir` of their own (`NewWrapperMounter`).

use std::path::Path;
use std::sync::Arc;

use kubelet_core::PodExt;

use super::empty_dir::{self, Medium};
use super::in_tree::Host;
use super::nested_mount_points;
use crate::filesystem::atomic_writer::{self, Payload};
use crate::filesystem::ownership::change_all;
use crate::filesystem::walk::Progress;
use crate::{Attributes, Error, OnDisk, PodMount, Result};

/// Containers cannot write to these volumes.
pub(super) const ATTRIBUTES: Attributes = Attributes {
    read_only: true,
    managed: true,
    selinux_relabel: true,
};

/// Makes `payload` the content of the volume. If that fails the first time, nothing is left.
pub(super) async fn write(
    host: &Arc<Host>,
    mount: &PodMount,
    medium: &Medium,
    payload: Payload,
) -> Result<()> {
    let (pod, name) = (&mount.pod, mount.spec.name());
    let nested = nested_mount_points::nested_mount_points(name, pod).map_err(Error::failed)?;
    let uid = pod.uid();
    let volume = empty_dir::Place::new(host, &uid, &wrapper_of(name), &mount.dir);
    empty_dir::set_up(host, pod, &volume, medium, mount.fs_group).await?;
    let (dir, group, now) = (mount.dir.clone(), mount.fs_group, host.clock.now());
    let leases = mount.leases.clone();
    let written = host.run(move || {
        nested_mount_points::make(&dir, &nested)?;
        let finish = || match group {
            Some(group) => change_all(&dir, group, true, &Progress::default()),
            None => Ok(()),
        };
        atomic_writer::write(&leases, &dir, &payload, now, finish)
    });
    let Err(error) = written.await else { return Ok(()) };
    let dir = mount.dir.clone();
    // Containers may use an earlier version.
    let is_in_use = host.run(move || Ok(atomic_writer::is_written(&dir))).await?;
    if !is_in_use && let Err(error) = empty_dir::tear_down(host, &volume).await {
        tracing::error!(%uid, volume = name, %error, "Cannot remove a volume that was not set up");
    }
    Err(error)
}

/// Removes the volume (`UnmountViaEmptyDir`).
pub(super) async fn tear_down(host: &Arc<Host>, mounted: &OnDisk) -> Result<()> {
    let dir: &Path = &mounted.dir;
    let volume = empty_dir::Place::new(host, &mounted.uid, &wrapper_of(&mounted.name), dir);
    empty_dir::tear_down(host, &volume).await
}

fn wrapper_of(name: &str) -> String {
    format!("wrapped_{name}")
}
