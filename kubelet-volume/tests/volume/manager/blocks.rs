//! Block devices: mapped for the node and for each pod.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, VolumeManager};
use kubelet_volume::{
    Attributes, BlockVolumePlugin, Error, Expansion, MountPoint, Mounter, NodeExpandableVolumePlugin, OnDisk,
    PodMount, Result, SetUp, VolumePlugin, VolumeSpec,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;

use super::claims::grow;
use super::fake::{Agent, Fault, World};

/// Devices that are files, and mounts in a list.
struct Devices {
    world: Arc<World>,
    mounts: Mutex<Vec<PathBuf>>,
}

impl Devices {
    fn device(&self) -> PathBuf {
        self.world.root.path().join("device")
    }

    fn agent(self: &Arc<Self>) -> Agent {
        let builder = self.world.builder().plugin(self.clone()).mounter(self.clone());
        Agent::of(builder.build().unwrap())
    }

    fn spec(name: &str) -> VolumeSpec {
        let volume = json!({"metadata": {"name": name},
            "spec": {"volumeMode": "Block", "local": {"path": "/dev/disk"}}});
        VolumeSpec::persistent(Arc::new(serde_json::from_value(volume).unwrap()), false)
    }
}

#[async_trait]
impl VolumePlugin for Devices {
    fn name(&self) -> &str {
        "test/block"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        spec.persistent_volume().is_some_and(|spec| spec.local.is_some())
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        Attributes::default()
    }

    async fn set_up(&self, _: &PodMount) -> Result<SetUp> {
        Err(Error::failed("a block device is not set up"))
    }

    async fn tear_down(&self, _: &OnDisk) -> Result<()> {
        Err(Error::failed("a block device is not torn down"))
    }

    async fn reconstruct(&self, _: &OnDisk) -> Result<VolumeSpec> {
        Err(Error::failed("a block device is no folder"))
    }

    fn block(&self) -> Option<&dyn BlockVolumePlugin> {
        Some(self)
    }

    fn expandable(&self) -> Option<&dyn NodeExpandableVolumePlugin> {
        Some(self)
    }
}

#[async_trait]
impl NodeExpandableVolumePlugin for Devices {
    async fn requires_expansion(&self, _: &VolumeSpec) -> bool {
        true
    }

    async fn node_expand(&self, expansion: &Expansion) -> Result<bool> {
        let call = format!("node_expand {}", expansion.device_path);
        self.world.call(call, || {}).await?;
        Ok(true)
    }
}

#[async_trait]
impl BlockVolumePlugin for Devices {
    fn global_map_path(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        Ok(self
            .world
            .root
            .path()
            .join("plugins/test~block")
            .join(spec.name()))
    }

    fn pod_device_map_path(&self, mount: &PodMount) -> (PathBuf, String) {
        (
            mount.dir.parent().unwrap().to_owned(),
            mount.spec.name().to_owned(),
        )
    }

    async fn set_up_device(&self, _: &PodMount, _: &str) -> Result<Option<PathBuf>> {
        self.world.call("set_up_device".to_owned(), || {}).await?;
        Ok(None)
    }

    async fn map_pod_device(&self, mount: &PodMount, _: &str) -> Result<PathBuf> {
        self.world.call(format!("map {}", mount.pod.uid()), || {}).await?;
        Ok(self.device())
    }

    async fn unmap_pod_device(&self, mapped: &OnDisk) -> Result<()> {
        self.world.call(format!("unmap {}", mapped.uid), || {}).await
    }

    async fn tear_down_device(&self, _: &VolumeSpec, _: &Path, _: &str) -> Result<()> {
        self.world.call("tear_down_device".to_owned(), || {}).await
    }

    async fn reconstruct_block(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(Self::spec(&found.name))
    }
}

#[async_trait]
impl Mounter for Devices {
    async fn mount(&self, source: &str, target: &Path, _: &str, options: &[String]) -> Result<()> {
        assert_eq!(
            (source, options),
            (self.device().to_str().unwrap(), &["bind".to_owned()][..])
        );
        self.mounts.lock().push(target.to_owned());
        Ok(())
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        self.mounts.lock().retain(|mount| mount != target);
        Ok(())
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool> {
        Ok(self.mounts.lock().iter().any(|mount| mount == path))
    }

    async fn mounts(&self, _: &Path) -> Result<Vec<MountPoint>> {
        Ok(Vec::new())
    }
}

fn devices() -> Arc<Devices> {
    let world = World::new();
    world.bind(
        "data",
        "pv",
        json!({"local": {"path": "/dev/disk"}, "volumeMode": "Block"}),
    );
    let devices = Arc::new(Devices {
        world,
        mounts: Mutex::default(),
    });
    fs::write(devices.device(), "").unwrap();
    devices
}

fn pod() -> Arc<Pod> {
    let pod = json!({"metadata": {"name": "a", "namespace": "shop", "uid": "uid-a"},
        "spec": {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}}],
            "containers": [{"name": "main", "volumeDevices": [{"name": "disk", "devicePath": "/dev/x"}]}]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_block_device_is_linked_for_its_pod_and_all_links_go_with_it() {
    let devices = devices();
    let (root, agent, pod) = (devices.world.root.path(), devices.agent(), pod());
    devices.world.fault("map", Fault::Fails("not yet"));
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(devices.world.calls(), ["set_up_device", "map uid-a", "map uid-a"]);
    let volume = agent.volumes.mounted_volumes(&pod.uid())["disk"].clone();
    let link = root.join("pods/uid-a/volumeDevices/test~block/pv");
    assert_eq!(
        (&volume.path, volume.is_block, volume.read_only),
        (&link, true, true)
    );
    assert_eq!(fs::read_link(&link).unwrap(), devices.device());
    let global = root.join("plugins/test~block/pv");
    assert_eq!(*devices.mounts.lock(), [global.join("uid-a")]);
    let events = devices.world.events.lock().clone();
    assert_eq!(
        events,
        [
            "a FailedMapVolume: MapVolume.MapPodDevice failed for volume \"pv\" : not yet".to_owned(),
            format!(
                "a SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume \"pv\" globalMapPath {global:?}"
            ),
            format!(
                "a SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume \"pv\" volumeMapPath {:?}",
                link.parent().unwrap()
            ),
        ]
    );

    // The next agent finds the link.
    agent.stop().await;
    let agent = devices.agent();
    agent.volumes.unmount_orphaned(&pod.uid()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(devices.world.calls(), ["unmap uid-a", "tear_down_device"]);
    assert!(devices.mounts.lock().is_empty() && fs::symlink_metadata(&link).is_err() && !global.exists());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_device_that_another_pod_still_refers_to_is_kept() {
    let devices = devices();
    let (agent, pod) = (devices.agent(), pod());
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    let other = devices.world.root.path().join("plugins/test~block/pv/uid-other");
    fs::write(&other, "").unwrap();
    agent.volumes.wait_for_unmount(&pod).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        devices.world.calls(),
        ["set_up_device", "map uid-a", "unmap uid-a"]
    );
    fs::remove_file(&other).unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(devices.world.calls(), ["tear_down_device"]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_block_device_grows_by_the_path_of_the_device_itself() {
    for is_online in [false, true] {
        let devices = devices();
        let mut pod = Pod::clone(&pod());
        let volume = &mut pod.spec.as_mut().unwrap().volumes.as_mut().unwrap()[0];
        volume.persistent_volume_claim.as_mut().unwrap().read_only = None;
        let (agent, pod) = (devices.agent(), Arc::new(pod));
        if is_online {
            agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
        }
        grow(&devices.world, "data", "pv", Some("NodeResizePending"));
        agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        let grown = format!("node_expand {}", devices.device().display());
        assert_eq!(devices.world.calls(), ["set_up_device", "map uid-a", &grown]);
        agent.stop().await;
    }
}
