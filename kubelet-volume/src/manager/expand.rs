//! Grows the file systems of persistent volumes on the node, and reports it in the status of the claims
//! (`node_expander.go`, `resize_util.go`).

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::PodUid;
use kubelet_core::quantity::Amount;
use serde_json::{Value, json};

use super::mount::Mounting;
use super::operation::{Failure, change, failed, read};
use super::record::VolumeKey;
use super::shared::Shared;
use crate::{Error, Expansion, Result, VolumePlugin, VolumeSpec};

const STORAGE: &str = "storage";
/// Conditions that this module and the controller set (`knownResizeConditions`).
const CONDITIONS: [&str; 4] = [
    "FileSystemResizePending",
    "Resizing",
    "ControllerResizeError",
    "NodeResizeError",
];
/// The driver does nothing on the node for this claim (`NodeExpansionNotRequired`).
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// Grows a volume that is mounted (`GenerateExpandInUseVolumeFunc`).
pub(crate) async fn expand(
    shared: &Shared,
    key: &VolumeKey,
    uid: &PodUid,
) -> std::result::Result<(), Failure> {
    let begun = read(shared, key, uid, |record, mount| {
        let mount_of_pod = record.pod_mount(mount, &shared.leases);
        let dir = match &mount.mounted {
            Some(volume) => volume.path.clone(),
            None => mount.on_disk.dir.clone(),
        };
        let expansion = Expansion {
            spec: mount.spec.clone(),
            device_path: record.device_path.clone(),
            device_mount_path: record.device_mount_path.clone().unwrap_or_default(),
            dir,
            old_size: record.growth().map(|(old, _)| old).unwrap_or_default(),
            new_size: record.growth().map(|(_, new)| new).unwrap_or_default(),
            is_published: true,
        };
        (record.plugin.clone(), mount_of_pod.pod, expansion)
    });
    let Some((plugin, pod, expansion)) = begun else {
        return Ok(());
    };
    // Whatever comes of it, it is tried again after the claim was read again.
    change(shared, key, |record| record.situation.must_grow = false);
    if !can_expand(&*plugin, &expansion.spec).await || expansion.new_size <= expansion.old_size {
        return Ok(());
    }
    let growing = async {
        let claim = claim_of(shared, &expansion.spec).await?;
        grow(shared, key, &*plugin, &pod, &claim, expansion).await
    };
    let result = growing
        .await
        .map_err(failed("NodeExpandVolume.NodeExpandVolume failed"));
    if result.is_err() {
        change(shared, key, |record| {
            record.situation.must_grow = record.growth().is_some()
        });
    }
    result
}

/// Grows a volume while it is mounted for a pod, before containers see it (`expandVolumeDuringMount`).
pub(crate) async fn while_mounting(
    shared: &Shared,
    key: &VolumeKey,
    mounting: &Mounting,
    path: &Path,
) -> Result<()> {
    let (plugin, spec) = (&*mounting.plugin, &mounting.mount.spec);
    if !can_expand(plugin, spec).await {
        return Ok(());
    }
    let claim = claim_of(shared, spec).await?;
    let (Some(old_size), Some(new_size)) = (size_of_claim(&claim), size_of_volume(spec)) else {
        return Ok(());
    };
    change(shared, key, |record| {
        record.size.current = Some(old_size);
        record.size.wanted = Some(new_size);
        record.size.cannot_grow_in_use = false;
        record.situation.must_grow = false;
    });
    if old_size >= new_size {
        return Ok(());
    }
    let expansion = Expansion {
        spec: spec.clone(),
        device_path: mounting.device_path.clone(),
        device_mount_path: mounting.mount.device_mount_path.clone().unwrap_or_default(),
        dir: path.to_owned(),
        old_size,
        new_size,
        is_published: true,
    };
    grow(shared, key, plugin, &mounting.mount.pod, &claim, expansion).await
}

/// (`checkIfSupportsNodeExpansion`)
async fn can_expand(plugin: &dyn VolumePlugin, spec: &VolumeSpec) -> bool {
    let is_persistent = spec.persistent_volume().is_some() && !spec.migrated_inline;
    match plugin.expandable().filter(|_| is_persistent) {
        Some(expandable) => expandable.requires_expansion(spec).await,
        None => false,
    }
}

async fn claim_of(shared: &Shared, spec: &VolumeSpec) -> Result<Arc<PersistentVolumeClaim>> {
    let claim = spec.persistent_volume().and_then(|spec| spec.claim_ref.as_ref());
    let namespace = claim
        .and_then(|claim| claim.namespace.as_deref())
        .unwrap_or_default();
    let name = claim.and_then(|claim| claim.name.as_deref()).unwrap_or_default();
    let found = shared.objects.claim(namespace, name).await;
    let in_words =
        |why: String| Error::failed(format!("mountVolume.NodeExpandVolume get PVC failed : {why}"));
    let found = found.map_err(|error| in_words(error.to_string()))?;
    found.ok_or_else(|| in_words(format!("persistentvolumeclaims {name:?} not found")))
}

/// Grows the file system if the controller has made the volume larger.
async fn grow(
    shared: &Shared,
    key: &VolumeKey,
    plugin: &dyn VolumePlugin,
    pod: &Pod,
    claim: &Arc<PersistentVolumeClaim>,
    mut expansion: Expansion,
) -> Result<()> {
    if expansion.spec.read_only {
        let volume = expansion.spec.name();
        let message = format!(
            "MountVolume.NodeExpandVolume failed for volume {volume:?} requested read-only file system"
        );
        shared.warn(pod, "FileSystemResizeFailed", &message);
        return Ok(());
    }
    let status = claim.status.clone().unwrap_or_default();
    let phase = status
        .allocated_resource_statuses
        .as_ref()
        .and_then(|all| all.get(STORAGE));
    let phase = phase.map(String::as_str).unwrap_or_default();
    // A controller before 1.23 says nothing of what it has allocated: the volume is then grown without asking.
    let is_recoverable = !phase.is_empty() || status.allocated_resources.is_some();
    if is_recoverable {
        let allocated = status
            .allocated_resources
            .as_ref()
            .and_then(|all| all.get(STORAGE));
        expansion.new_size = allocated.and_then(bytes).unwrap_or_default();
    }
    let is_recorded = size_of_claim(claim).is_some_and(|size| size >= expansion.new_size);
    let other_node_did_it = is_recorded && phase.is_empty();
    if is_recoverable && !may_grow(claim, phase, other_node_did_it) {
        // The controller has done all there was to do, or has to act first.
        if other_node_did_it {
            note_size(shared, key, expansion.new_size);
        }
        return Ok(());
    }
    let mut claim = claim.clone();
    if is_recoverable && !other_node_did_it {
        let patch = json!({"allocatedResourceStatuses": {STORAGE: "NodeResizeInProgress"}});
        claim = shared.objects.patch_claim_status(&claim, patch).await?;
    }
    let Some(expandable) = plugin.expandable() else {
        return Ok(());
    };
    if let Err(error) = expandable.node_expand(&expansion).await {
        let is_done = matches!(error, Error::Unsupported { .. }) && (!is_recoverable || other_node_did_it);
        if is_done {
            note_size(shared, key, expansion.new_size);
            return Ok(());
        }
        if is_recoverable && !error.is_uncertain() {
            report_failure(shared, key, &claim, &expansion, &error).await;
        }
        if matches!(error, Error::FailedPrecondition { .. }) {
            // The pod can use the volume with its old size.
            tracing::warn!(%error, volume = &**key, "The volume cannot grow while it is in use");
            change(shared, key, |record| record.size.cannot_grow_in_use = true);
            return Ok(());
        }
        return Err(error);
    }
    let node = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default();
    let volume = expansion.spec.name();
    let message = format!("MountVolume.NodeExpandVolume succeeded for volume {volume:?} {node}");
    shared.inform(pod, "FileSystemResizeSuccessful", &message);
    if !is_recorded {
        report_success(shared, &claim, expansion.new_size).await?;
    }
    note_size(shared, key, expansion.new_size);
    Ok(())
}

/// (`NodeExpander.runPreCheck`)
fn may_grow(claim: &PersistentVolumeClaim, phase: &str, other_node_did_it: bool) -> bool {
    let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
    let is_shared = modes.into_iter().flatten().any(|mode| mode == "ReadWriteMany");
    let annotations = claim.metadata.annotations.as_ref();
    let is_required = annotations.is_none_or(|annotations| !annotations.contains_key(NOT_REQUIRED));
    // Each node grows the file system of a volume that several nodes mount.
    other_node_did_it && is_shared && is_required
        || matches!(phase, "NodeResizePending" | "NodeResizeInProgress")
}

fn note_size(shared: &Shared, key: &VolumeKey, size: i64) {
    change(shared, key, |record| {
        record.size.current = Some(size);
        record.size.has_failed = false;
    });
}

/// (`MarkNodeExpansionFinishedWithRecovery`, `MarkFSResizeFinished`)
async fn report_success(shared: &Shared, claim: &PersistentVolumeClaim, size: i64) -> Result<()> {
    let patch = json!({
        "capacity": {STORAGE: quantity(claim, size)},
        "allocatedResourceStatuses": {STORAGE: null},
        "conditions": conditions(claim, None, shared),
    });
    let patched = shared.objects.patch_claim_status(claim, patch).await;
    patched.map(drop).map_err(|error| {
        Error::failed(format!(
            "mountVolume.NodeExpandVolume update pvc status failed: {error}"
        ))
    })
}

/// (`MarkNodeExpansionInfeasible`, `MarkNodeExpansionFailedCondition`)
async fn report_failure(
    shared: &Shared,
    key: &VolumeKey,
    claim: &PersistentVolumeClaim,
    expansion: &Expansion,
    error: &Error,
) {
    let wanted = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get(STORAGE));
    let mut had_failed = false;
    change(shared, key, |record| {
        had_failed = std::mem::replace(&mut record.size.has_failed, true);
    });
    // The user has asked for another size since: the controller takes over.
    let was_changed = had_failed && wanted.and_then(bytes) != Some(expansion.new_size);
    let mut patch = json!({"conditions": conditions(claim, Some(error), shared)});
    if was_changed || matches!(error, Error::Infeasible { .. }) {
        patch["allocatedResourceStatuses"] = json!({STORAGE: "NodeResizeInfeasible"});
    }
    if let Err(error) = shared.objects.patch_claim_status(claim, patch).await {
        tracing::warn!(%error, volume = &**key, "Cannot report that a volume did not grow");
    }
}

/// The conditions of the claim without those about its size, or with a new error (`MergeResizeConditionOnPVC`).
fn conditions(claim: &PersistentVolumeClaim, error: Option<&Error>, shared: &Shared) -> Value {
    let now = claim
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let is_kept = |kind: &str| match error {
        Some(_) => kind != "NodeResizeError",
        None => !CONDITIONS.contains(&kind),
    };
    let mut kept: Vec<Value> = now
        .filter(|condition| is_kept(&condition.type_))
        .map(|condition| json!(condition))
        .collect();
    if let Some(error) = error {
        kept.push(json!({
            "type": "NodeResizeError",
            "status": "True",
            "lastTransitionTime": shared.clock.api_now(),
            "message": format!("failed to expand pvc with {error}"),
        }));
    }
    Value::Array(kept)
}

/// The size in the words in which the claim or the controller gave it, if it is the same.
fn quantity(claim: &PersistentVolumeClaim, size: i64) -> Quantity {
    let requested = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let allocated = claim
        .status
        .as_ref()
        .and_then(|status| status.allocated_resources.as_ref());
    let same = [allocated, requested]
        .into_iter()
        .flatten()
        .filter_map(|all| all.get(STORAGE));
    let same = same.into_iter().find(|quantity| bytes(quantity) == Some(size));
    same.cloned().unwrap_or_else(|| Quantity(size.to_string()))
}

fn size_of_claim(claim: &PersistentVolumeClaim) -> Option<i64> {
    bytes(claim.status.as_ref()?.capacity.as_ref()?.get(STORAGE)?)
}

fn size_of_volume(spec: &VolumeSpec) -> Option<i64> {
    bytes(spec.persistent_volume()?.capacity.as_ref()?.get(STORAGE)?)
}

fn bytes(quantity: &Quantity) -> Option<i64> {
    Amount::try_from(quantity).ok().map(Amount::value)
}
