//! CSI volumes under the volume manager: what holds from the pod to the driver.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{Disk, PodExt, RootDir, VolumeManager};
use kubelet_testing::csi_driver::{CsiFault, CsiMethod, CsiTrouble, MemoryCsi, ServedCsi, VOLUME_FILE};
use kubelet_volume::csi::{CsiDrivers, CsiPlugin, FixedCsiObjects, migration};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::node::{DRIVER, Folders, csi_driver};
use crate::manager::fake::{Agent, World, pod};

/// A driver that is served again whenever it dies.
struct Kept {
    driver: MemoryCsi,
    stop: CancellationToken,
    keeper: JoinHandle<()>,
}

impl Kept {
    fn start(world: &World) -> Self {
        let driver = MemoryCsi::new(DRIVER);
        let socket = world.root.path().join("csi.sock");
        let stop = CancellationToken::new();
        let serve =
            |driver: &MemoryCsi, socket: &std::path::Path| -> ServedCsi { driver.serve(socket).unwrap() };
        let mut served = serve(&driver, &socket);
        let (kept, ends) = (driver.clone(), stop.clone());
        let keeper = tokio::spawn(async move {
            while ends.run_until_cancelled(served.died()).await.is_some() {
                served = serve(&kept, &socket);
            }
            served.stop().await;
        });
        Self { driver, stop, keeper }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.keeper.await.unwrap();
    }
}

fn agent(world: &Arc<World>) -> Agent {
    agent_with(world, DRIVER)
}

fn agent_with(world: &Arc<World>, name: &str) -> Agent {
    let objects = FixedCsiObjects::new();
    let mut driver = csi_driver(json!({"attachRequired": false}));
    driver.metadata.name = Some(name.to_owned());
    objects.set_driver(driver);
    let drivers = CsiDrivers::new();
    drivers.add(name, world.root.path().join("csi.sock"));
    let root = RootDir::new(world.root.path());
    let csi = CsiPlugin::builder(root, "node-1", drivers, Arc::new(objects), Arc::new(Folders));
    let csi = csi.disk(Disk::inline()).build();
    let volumes = world
        .builder()
        .plugin(Arc::new(csi))
        .translate(migration::translate);
    Agent::of(volumes.build().unwrap())
}

fn bind(world: &World, name: &str) {
    let source = json!({"csi": {"driver": DRIVER, "volumeHandle": format!("handle-of-{name}")}});
    world.bind(name, &format!("pv-{name}"), source);
}

fn with_claims(name: &str, claims: &[&str]) -> Arc<Pod> {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    pod(name, claims.iter().map(volume).collect())
}

async fn mount(agent: &Agent, pod: &Arc<Pod>) {
    while agent.volumes.wait_for_attach_and_mount(pod).await.is_err() {}
}

async fn unmount(agent: &Agent, pod: &Arc<Pod>) {
    while agent.volumes.wait_for_unmount(pod).await.is_err() {}
}

/// Waits until the driver has no volume any more: the device is unmounted after the last pod is gone.
async fn until_nothing_is_staged(driver: &MemoryCsi) {
    while !driver.staged().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_claim_is_staged_once_and_published_for_each_pod() {
    let world = World::new();
    let kept = Kept::start(&world);
    bind(&world, "data");
    let agent = agent(&world);
    let pods = ["a", "b"].map(|name| with_claims(name, &["data"]));
    for pod in &pods {
        mount(&agent, pod).await;
        let mounted = agent.volumes.mounted_volumes(&pod.uid());
        let file = mounted["data"].path.join(VOLUME_FILE);
        assert_eq!(std::fs::read_to_string(file).unwrap(), "handle-of-data");
    }
    kept.driver.calls().assert_count("NodeStageVolume", 1);
    unmount(&agent, &pods[0]).await;
    assert_eq!(kept.driver.staged().len(), 1);
    unmount(&agent, &pods[1]).await;
    until_nothing_is_staged(&kept.driver).await;
    assert!(kept.driver.violations().is_empty());
    assert_eq!(world.left(), Vec::<String>::new());
    agent.stop().await;
    kept.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_holds_up_its_own_pod_only() {
    let world = World::new();
    let kept = Kept::start(&world);
    bind(&world, "hung");
    bind(&world, "well");
    let fault = CsiFault::on(CsiMethod::NodeStageVolume).volume("handle-of-hung");
    kept.driver.fault(fault.then(CsiTrouble::Hangs));
    let agent = agent(&world);
    let (hung, well) = (with_claims("hung", &["hung"]), with_claims("well", &["well"]));
    tokio::select! {
        biased;
        () = mount(&agent, &hung) => panic!("the volume is mounted"),
        () = async {
            mount(&agent, &well).await;
            unmount(&agent, &well).await;
        } => {}
    }
    agent.stop().await;
    kept.stop().await;
}

/// Lost answers, errors, and drivers that die, while the agent restarts: no volume is staged twice, published without
/// being staged, or unstaged in use, and in the end nothing is left.
#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_no_volume_is_left_behind() {
    for seed in 0..20 {
        let world = World::new();
        let kept = Kept::start(&world);
        let troubles = [
            CsiTrouble::AnswerLost,
            CsiTrouble::Fails(Code::Internal, "no".into()),
            CsiTrouble::Fails(Code::Aborted, "busy".into()),
            CsiTrouble::DiesAfterWork,
            CsiTrouble::Dies,
            CsiTrouble::HangsAfterWork,
        ];
        for (number, trouble) in troubles.into_iter().enumerate() {
            let fault = CsiFault::on_any_volume_call()
                .times(20)
                .rate(0.15, seed * 11 + number as u64);
            kept.driver.fault(fault.then(trouble));
        }
        for claim in ["x", "y"] {
            bind(&world, claim);
        }
        let pods = [("a", &["x", "y"][..]), ("b", &["x"]), ("c", &["y"])];
        let pods = pods.map(|(name, claims)| with_claims(name, claims));
        let mut running = agent(&world);
        for pod in &pods {
            mount(&running, pod).await;
            for volume in running.volumes.mounted_volumes(&pod.uid()).values() {
                assert!(volume.path.join(VOLUME_FILE).exists(), "seed {seed}");
            }
        }
        if seed % 2 == 0 {
            running.stop().await;
            running = agent(&world);
            for pod in &pods {
                mount(&running, pod).await;
            }
        }
        assert_eq!(kept.driver.published().len(), 4, "seed {seed}");
        for pod in &pods {
            unmount(&running, pod).await;
        }
        until_nothing_is_staged(&kept.driver).await;
        assert_eq!(kept.driver.published(), [], "seed {seed}");
        assert_eq!(kept.driver.violations(), Vec::<String>::new(), "seed {seed}");
        assert_eq!(world.left(), Vec::<String>::new(), "seed {seed}");
        running.stop().await;
        kept.stop().await;
    }
}

#[tokio::test]
async fn a_volume_whose_name_is_a_path_has_one_folder_and_is_found_again() {
    const AZURE: &str = "disk.csi.azure.com";
    let world = World::new();
    let kept = Kept::start(&world);
    let disk = json!({"name": "d", "azureDisk": {"diskName": "d", "diskURI": "/subscriptions/s/disks/d"}});
    let pod = pod("a", json!([disk]));
    let running = agent_with(&world, AZURE);
    mount(&running, &pod).await;
    let mounted = running.volumes.mounted_volumes(&pod.uid());
    let volume = mounted["d"].path.parent().unwrap().to_owned();
    assert!(
        volume.parent().unwrap().ends_with("volumes/kubernetes.io~csi"),
        "{volume:?}"
    );
    assert_eq!(
        volume.file_name().unwrap().to_str(),
        Some(mounted["d"].inner_name.as_str())
    );
    running.stop().await;

    let running = agent_with(&world, AZURE);
    while running.volumes.unmount_orphaned(&pod.uid()).await.is_err() {}
    until_nothing_is_staged(&kept.driver).await;
    assert_eq!(kept.driver.published(), []);
    assert_eq!(kept.driver.violations(), Vec::<String>::new());
    assert_eq!(world.left(), Vec::<String>::new());
    running.stop().await;
    kept.stop().await;
}
