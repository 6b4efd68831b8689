//! Attaches volumes to the node, or waits until the controller has done so.

use super::operation::{Failure, change, failed};
use super::record::VolumeKey;
use super::shared::{Shared, message_of};
use crate::Error;

/// Checks that the controller has attached the volume (`GenerateVerifyControllerAttachedVolumeFunc`).
pub(crate) async fn verify_attached(shared: &Shared, key: &VolumeKey) -> Result<(), Failure> {
    let attached = shared.objects.attached().await.map_err(failed(
        "VerifyControllerAttachedVolume failed fetching node from API server",
    ))?;
    let Some((_, path)) = attached.into_iter().find(|(name, _)| **name == **key) else {
        let error = Error::failed("the controller has not attached it");
        return Err(Failure::new(
            "Volume not attached according to node status",
            error,
        ));
    };
    change(shared, key, |record| {
        record.situation.attached = true;
        record.device_path = path;
    });
    Ok(())
}

/// Attaches the volume, for an agent that does so itself (`GenerateAttachVolumeFunc`).
pub(crate) async fn attach(shared: &Shared, key: &VolumeKey) -> Result<(), Failure> {
    let read = {
        let state = shared.state.lock();
        let record = state.records.get(key);
        record.map(|record| {
            let pod = record.mounts.values().next().map(|mount| mount.pod.clone());
            (record.plugin.clone(), record.spec.clone(), pod)
        })
    };
    let Some((plugin, spec, pod)) = read else {
        return Ok(());
    };
    let Some(attachable) = plugin.attachable() else {
        return Ok(());
    };
    let path = attachable.attach(&spec, &shared.node_name).await;
    let path = path.map_err(failed("AttachVolume.Attach failed"))?;
    if let Some(pod) = pod {
        let message = format!("AttachVolume.Attach succeeded for volume {:?} ", spec.name());
        shared.inform(&pod, "SuccessfulAttachVolume", &message);
    }
    change(shared, key, |record| {
        record.situation.attached = true;
        record.device_path = path;
    });
    Ok(())
}

/// Detaches the volume, for an agent that does so itself (`GenerateDetachVolumeFunc`).
pub(crate) async fn detach(shared: &Shared, key: &VolumeKey) -> Result<(), Failure> {
    let read = {
        let state = shared.state.lock();
        let record = state.records.get(key);
        record.map(|record| (record.plugin.clone(), record.spec.clone()))
    };
    let Some((plugin, spec)) = read else { return Ok(()) };
    if let Some(attachable) = plugin.attachable() {
        let prefix = format!("{}/", plugin.name());
        let name = key.strip_prefix(&prefix).unwrap_or(key);
        attachable
            .detach(name, &shared.node_name)
            .await
            .map_err(failed("DetachVolume.Detach failed"))?;
    }
    tracing::info!(
        "{}",
        message_of("DetachVolume.Detach succeeded", spec.name(), key)
    );
    change(shared, key, |record| record.situation.attached = false);
    Ok(())
}
