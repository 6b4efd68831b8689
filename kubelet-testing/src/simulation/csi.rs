//! The CSI volumes of a simulated node: the driver, their attachment, and what is wrong with them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube_client::Client;
use kube_client::api::{Api, Patch, PatchParams};
use kubelet_core::{Disk, RootDir, VolumesInUse};
use kubelet_volume::csi::{ApiServerCsiObjects, CsiDrivers, CsiObjects, CsiPlugin, FixedCsiObjects};
use kubelet_volume::{Mounter, NodeVolumesHandle, Result};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::agent::AgentError;
use super::storage::{Parts, of};
use crate::ApiServer;
use crate::csi_driver::{CsiFault, CsiMethod, CsiTrouble, MemoryCsi};
use crate::memory_cri::hash;

/// The name of the driver whose volumes are attached.
pub(super) const ATTACHED: &str = "attached.sim";
/// The name of the driver whose volumes are not. It also has inline volumes.
pub(super) const PLAIN: &str = "plain.sim";
/// How the names of their volumes begin.
pub(super) const ATTACHED_DISK: &str = "attached-disk";
pub(super) const PLAIN_DISK: &str = "plain-disk";
/// How the handles of inline volumes begin.
const INLINE: &str = "csi-";
/// The time limit of a request.
const DEADLINE: Duration = Duration::from_secs(10);
/// The pause after a failed request.
const PAUSE: Duration = Duration::from_secs(1);
/// How many kinds of faults a driver has.
const KINDS: f64 = 6.0;

/// The objects of the drivers.
fn drivers() -> [CSIDriver; 2] {
    [
        of(
            json!({"metadata": {"name": ATTACHED}, "spec": {"attachRequired": true, "fsGroupPolicy": "None",
            "volumeLifecycleModes": ["Persistent"]}}),
        ),
        of(
            json!({"metadata": {"name": PLAIN}, "spec": {"attachRequired": false, "fsGroupPolicy": "None",
            "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent", "Ephemeral"]}}),
        ),
    ]
}

pub(super) fn create_drivers(api: &ApiServer) -> Result<(), AgentError> {
    for driver in drivers() {
        api.create(&driver)?;
    }
    Ok(())
}

/// The source of a persistent volume.
pub(super) fn source(driver: &str, disk: &str, number: u64) -> Value {
    json!({"csi": {"driver": driver, "volumeHandle": format!("{disk}-{number}")}})
}

/// The plugin of an agent. One driver serves under both names.
pub(super) fn plugin(parts: &Parts<'_>, mounter: Arc<dyn Mounter>) -> CsiPlugin {
    let served = CsiDrivers::new();
    served.add_in_process(ATTACHED, parts.csi.node_service());
    served.add_in_process(PLAIN, parts.csi.node_service());
    let objects = Objects {
        drivers: FixedCsiObjects::new(),
        api: ApiServerCsiObjects::new(parts.client.clone(), parts.name),
    };
    for driver in drivers() {
        objects.drivers.set_driver(driver);
    }
    let root_dir = RootDir::new(parts.root_dir);
    let plugin = CsiPlugin::builder(root_dir, parts.name, served, Arc::new(objects), mounter);
    plugin
        .recorder(parts.recorder.clone())
        .disk(Disk::inline())
        .clock(parts.clock)
        .jitter(parts.jitter.clone())
        .build()
}

/// Attachments of the API server. The drivers never change, and a watch of them would make quiet time expensive.
struct Objects {
    drivers: FixedCsiObjects,
    api: ApiServerCsiObjects,
}

#[async_trait]
impl CsiObjects for Objects {
    async fn driver(&self, name: &str) -> Result<Option<Arc<CSIDriver>>> {
        self.drivers.driver(name).await
    }

    async fn attachment(&self, name: &str) -> Result<Option<VolumeAttachment>> {
        self.api.attachment(name).await
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>> {
        self.api.secret(namespace, name).await
    }
}

/// The faults of a driver: this fraction of its calls fails.
pub(super) fn befall(driver: &MemoryCsi, rate: f64, seed: u64) {
    if rate <= 0.0 {
        return;
    }
    let troubles = [
        CsiTrouble::Fails(tonic::Code::Internal, "drawn".to_owned()),
        CsiTrouble::Fails(tonic::Code::Unavailable, "drawn".to_owned()),
        CsiTrouble::AnswerLost,
        CsiTrouble::Slow(Duration::from_secs(3)),
        CsiTrouble::Hangs,
        CsiTrouble::HangsAfterWork,
    ];
    for (number, trouble) in troubles.into_iter().enumerate() {
        let seed = hash(seed, format!("csi-{number}"));
        let fault = CsiFault::on_any_volume_call().rate(rate / KINDS, seed);
        driver.fault(fault.then(trouble));
    }
    let fault = CsiFault::on(CsiMethod::NodeGetCapabilities).rate(rate / KINDS, hash(seed, "csi"));
    driver.fault(fault.then(CsiTrouble::Hangs));
}

/// Reports the volumes that must not be detached, in the node's status. Never ends.
pub(super) async fn report_in_use(client: Client, name: &str, volumes: &NodeVolumesHandle) {
    let nodes = Api::<Node>::all(client);
    let mut changes = volumes.changes();
    let mut reported = None;
    loop {
        if let Some(mut used) = volumes.volumes_in_use() {
            used.sort_unstable();
            if reported.as_ref() != Some(&used) {
                let patch = Patch::Merge(json!({"status": {"volumesInUse": used}}));
                let params = PatchParams::default();
                let patched = timeout(DEADLINE, nodes.patch_status(name, &params, &patch)).await;
                let Ok(Ok(_)) = patched else {
                    // It may have been done.
                    reported = None;
                    sleep(PAUSE).await;
                    continue;
                };
            }
            volumes.mark_reported(&used);
            reported = Some(used);
        }
        match &mut changes {
            // The sender lives as long as the handle.
            Some(changes) => _ = changes.changed().await,
            None => sleep(PAUSE).await,
        }
    }
}

/// Whether a path is where a CSI volume is published for a pod: `<pod>/volumes/kubernetes.io~csi/<volume>/mount`.
pub(super) fn is_mount(path: &Path) -> bool {
    let mut above = path.ancestors().map(Path::file_name);
    above.next().flatten().is_some_and(|name| name == "mount")
        && above
            .nth(1)
            .flatten()
            .is_some_and(|name| name == "kubernetes.io~csi")
}

/// What is staged on a node although it is detached.
pub(super) fn detached(api: &ApiServer, node: &str, driver: &MemoryCsi) -> Vec<String> {
    let mut staged = driver.staged();
    staged.retain(|(volume, _)| volume.starts_with(ATTACHED_DISK));
    if staged.is_empty() {
        return Vec::new();
    }
    // Nobody knows while the server is away.
    let Ok(attachments) = api.list::<VolumeAttachment>() else {
        return Vec::new();
    };
    staged.retain(|(volume, _)| {
        let mut specs = attachments.iter().map(|attachment| &attachment.spec);
        !specs
            .any(|spec| spec.node_name == node && spec.source.persistent_volume_name.as_ref() == Some(volume))
    });
    let detached = staged.into_iter();
    detached
        .map(|(volume, path)| format!("{volume} is detached, and staged at {}", path.display()))
        .collect()
}

/// What is attached, with no pod left.
pub(super) fn left_attached(api: &ApiServer) -> Vec<String> {
    let left = api.list::<VolumeAttachment>().unwrap_or_default();
    let left = left.into_iter().map(|attachment| attachment.spec);
    left.map(|spec| {
        let volume = spec.source.persistent_volume_name.unwrap_or_default();
        format!("{volume} is still attached to {}", spec.node_name)
    })
    .collect()
}

/// Which kinds of volumes a driver has published, and how often.
pub(super) fn published(driver: &MemoryCsi) -> Vec<String> {
    let mut all = driver.calls().all();
    all.retain(|call| call.method == CsiMethod::NodePublishVolume);
    let kinds = [ATTACHED_DISK, PLAIN_DISK, INLINE].into_iter();
    let counted = kinds.map(|kind| {
        let of_kind = all.iter().filter(|call| call.volume.starts_with(kind));
        (kind, of_kind.count())
    });
    let some = counted.filter(|(_, count)| *count > 0);
    some.map(|(kind, count)| format!("CSI volumes {kind} were published {count} times"))
        .collect()
}

#[cfg(test)]
mod tests {
    use kubelet_volume::csi::v1::NodeStageVolumeRequest;
    use kubelet_volume::csi::v1::node_server::Node as _;
    use tonic::Request;

    use super::*;
    use crate::MemoryMounter;

    #[tokio::test]
    async fn a_volume_that_is_staged_and_not_attached_is_found() {
        let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::new());
        let driver = MemoryCsi::with_memory_mounts("csi.sim", MemoryMounter::new(0));
        let volume = format!("{ATTACHED_DISK}-0");
        let request = NodeStageVolumeRequest {
            volume_id: volume.clone(),
            staging_target_path: dir.path().display().to_string(),
            ..Default::default()
        };
        let service = driver.node_service();
        service.node_stage_volume(Request::new(request)).await.unwrap();
        assert_eq!(detached(&api, "node-1", &driver).len(), 1);
        let attachment = json!({"metadata": {"name": "one"}, "spec": {"attacher": ATTACHED, "nodeName": "node-1",
            "source": {"persistentVolumeName": volume}}});
        api.create(&of::<VolumeAttachment>(attachment)).unwrap();
        assert_eq!(detached(&api, "node-1", &driver), [""; 0]);
        assert_eq!(detached(&api, "node-2", &driver).len(), 1);
        assert_eq!(left_attached(&api).len(), 1);
        driver.lose_all();
        assert_eq!(detached(&api, "node-2", &driver), [""; 0]);
    }
}
