//! Runs one step of one volume, and records what came of it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodUid;
use tokio::time::Instant;

use super::back_off::Kind;
use super::next_step::{Presence, Step};
use super::record::{Mount, Record, VolumeKey};
use super::shared::Shared;
use super::{attach, device, expand, metrics, mount, tear_down};
use crate::Error;

/// How long a mount waits for the device of an attached volume (`waitForAttachTimeout`).
pub(crate) const ATTACH_PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Why an operation failed.
pub(crate) struct Failure {
    /// The kubelet's words for what failed, e.g. `MountVolume.SetUp failed`.
    pub(crate) what: &'static str,
    pub(crate) error: Error,
}

impl Failure {
    pub(crate) fn new(what: &'static str, error: impl Into<Error>) -> Self {
        Self {
            what,
            error: error.into(),
        }
    }
}

/// For `map_err`.
pub(crate) fn failed(what: &'static str) -> impl Fn(Error) -> Failure {
    move |error| Failure::new(what, error)
}

/// Runs a step. The situation is up to date when it returns.
pub(crate) async fn run(shared: Arc<Shared>, key: VolumeKey, step: Step) {
    let begun = Instant::now();
    let Some(about) = About::of(&shared, &key, &step) else {
        // The engine starts no step of a volume that is gone.
        return finish(&shared, &key, |_| {});
    };
    let result = match &step {
        Step::VerifyAttached => attach::verify_attached(&shared, &key).await,
        Step::Attach => attach::attach(&shared, &key).await,
        Step::Detach => attach::detach(&shared, &key).await,
        Step::Mount(uid) => mount::mount(&shared, &key, uid).await,
        Step::TearDown(uid) => tear_down::tear_down(&shared, &key, uid).await,
        Step::Expand(uid) => expand::expand(&shared, &key, uid).await,
        Step::UnmountDevice => device::unmount(&shared, &key).await,
        Step::Rest | Step::WaitUntil(_) | Step::Forget => Ok(()),
    };
    let name = metrics::operation_name(&step, about.is_block);
    let waits_for_controller = step == Step::VerifyAttached;
    match &result {
        Ok(()) => tracing::debug!(
            volume = &*key,
            operation = name,
            "Operation on a volume succeeded"
        ),
        Err(failure) if waits_for_controller => {
            tracing::debug!(volume = &*key, operation = name, error = %failure.error, "The volume is not attached yet");
        }
        Err(failure) => {
            let message = super::shared::message_of(failure.what, &about.name, &failure.error.to_string());
            tracing::warn!(volume = &*key, operation = name, pod = %about.uid(), "{message}");
            if let (Some(reason), Some(pod)) = (event_reason(&step, about.is_block), &about.pod) {
                shared.warn(pod, reason, &message);
            }
        }
    }
    metrics::operation_ended(
        name,
        &about.plugin,
        about.is_migrated,
        result.is_ok(),
        begun.elapsed(),
    );
    finish(&shared, &key, |record| note_result(record, &step, result.is_ok()));
}

/// The reason of the event for an operation that failed. Failed unmounts are logged only, as by the kubelet.
fn event_reason(step: &Step, is_block: bool) -> Option<&'static str> {
    match step {
        Step::Mount(_) if is_block => Some("FailedMapVolume"),
        Step::Mount(_) => Some("FailedMount"),
        Step::Attach => Some("FailedAttachVolume"),
        Step::Expand(_) => Some("VolumeResizeFailed"),
        _ => None,
    }
}

/// Sets or ends the back-off.
fn note_result(record: &mut Record, step: &Step, is_ok: bool) {
    let situation = &mut record.situation;
    let (kind, back_off) = match step {
        Step::Mount(uid) | Step::TearDown(uid) => {
            let kind = match step {
                Step::Mount(_) => Kind::Mount,
                _ => Kind::TearDown,
            };
            let Some(mount) = situation.mounts.get_mut(uid) else {
                return;
            };
            (kind, &mut mount.back_off)
        }
        Step::VerifyAttached => (Kind::VerifyAttached, &mut situation.back_off),
        Step::Attach => (Kind::Attach, &mut situation.back_off),
        Step::Detach => (Kind::Detach, &mut situation.back_off),
        Step::Expand(_) => (Kind::Expand, &mut situation.back_off),
        Step::UnmountDevice => (Kind::UnmountDevice, &mut situation.back_off),
        Step::Rest | Step::WaitUntil(_) | Step::Forget => return,
    };
    match is_ok {
        true => back_off.reset(),
        false => back_off.fail(kind, Instant::now()),
    }
}

/// Ends the operation: the engine may start the next one.
pub(crate) fn finish(shared: &Shared, key: &VolumeKey, change: impl FnOnce(&mut Record)) {
    let mut state = shared.state.lock();
    if let Some(record) = state.records.get_mut(key) {
        change(record);
        record.situation.is_busy = false;
    }
    state.note(key);
}

/// The operation panicked. What it did is not known.
pub(crate) fn lost(shared: &Shared, key: &VolumeKey, step: &Step) {
    tracing::error!(volume = &**key, ?step, "An operation on a volume panicked");
    finish(shared, key, |record| {
        if let Step::UnmountDevice = step {
            record.situation.device = Presence::Uncertain;
        }
        note_result(record, step, false);
    });
}

/// What logs, events and metrics say of an operation.
struct About {
    name: String,
    plugin: String,
    pod: Option<Arc<Pod>>,
    is_block: bool,
    is_migrated: bool,
}

impl About {
    fn of(shared: &Shared, key: &VolumeKey, step: &Step) -> Option<Self> {
        let state = shared.state.lock();
        let record = state.records.get(key)?;
        let mount = match step {
            Step::Mount(uid) | Step::TearDown(uid) | Step::Expand(uid) => record.mounts.get(uid),
            _ => record.mounts.values().next(),
        };
        Some(Self {
            name: record.spec.name().to_owned(),
            plugin: record.qualified_plugin_name(),
            pod: mount.map(|mount| mount.pod.clone()),
            is_block: record.is_block,
            is_migrated: record.is_migrated(),
        })
    }

    fn uid(&self) -> &str {
        let uid = self.pod.as_ref().and_then(|pod| pod.metadata.uid.as_deref());
        uid.unwrap_or_default()
    }
}

/// Reads a volume and the mount of a pod. `None` if one of them is gone.
pub(crate) fn read<T>(
    shared: &Shared,
    key: &VolumeKey,
    uid: &PodUid,
    read: impl FnOnce(&Record, &Mount) -> T,
) -> Option<T> {
    let state = shared.state.lock();
    let record = state.records.get(key)?;
    Some(read(record, record.mounts.get(uid)?))
}

/// Changes a volume in the middle of an operation.
pub(crate) fn change(shared: &Shared, key: &VolumeKey, change: impl FnOnce(&mut Record)) {
    if let Some(record) = shared.state.lock().records.get_mut(key) {
        change(record);
    }
}
