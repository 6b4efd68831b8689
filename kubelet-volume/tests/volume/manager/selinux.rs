//! Volumes that are mounted with the SELinux context of their pod.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodSecurityContext, SELinuxOptions};
use kubelet_core::{PodExt, VolumeManager};
use kubelet_volume::SelinuxContexts;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::fake::{Agent, Fault, World, claimed, pod};

const CONTEXTS: &str = "process = \"system_u:system_r:container_t:s0\"\n\
    file = \"system_u:object_r:container_file_t:s0\"";

fn world() -> Arc<World> {
    let world = World::new();
    *world.mounts_with_contexts.lock() = true;
    let volume = json!({"hostPath": {"path": "/"}, "accessModes": ["ReadWriteOncePod"]});
    world.bind("data", "pv", volume);
    world
}

fn agent(world: &Arc<World>) -> Agent {
    let contexts = SelinuxContexts::parse(CONTEXTS);
    Agent::of(world.builder().selinux(Some(contexts)).build().unwrap())
}

/// A pod that mounts the volume, with this SELinux level.
fn leveled(name: &str, level: &str) -> Arc<Pod> {
    let mut pod = Pod::clone(&pod(name, json!([claimed("data")])));
    pod.spec.as_mut().unwrap().security_context = Some(PodSecurityContext {
        se_linux_options: Some(SELinuxOptions {
            level: Some(level.to_owned()),
            ..SELinuxOptions::default()
        }),
        ..PodSecurityContext::default()
    });
    Arc::new(pod)
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_mounted_with_the_context_of_its_pod() {
    let world = world();
    let agent = agent(&world);
    let (a, b) = (leveled("a", "s0:c1"), leveled("b", "s0:c2"));
    agent.volumes.wait_for_attach_and_mount(&a).await.unwrap();
    let label = |level: &str| format!("system_u:object_r:container_file_t:{level}");
    let (of_a, of_b) = (label("s0:c1"), label("s0:c2"));
    assert_eq!(
        world.calls(),
        [
            format!("mount_device pv {of_a}"),
            format!("set_up uid-a/pv {of_a}")
        ]
    );
    let mounted = agent.volumes.mounted_volumes(&a.uid());
    assert!(!mounted["data"].selinux_relabel);

    let error = agent.volumes.wait_for_attach_and_mount(&b).await.unwrap_err();
    let conflict = format!(
        "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: \
         conflicting SELinux labels of volume pv: {of_a:?} and {of_b:?}"
    );
    assert!(error.to_string().ends_with(&conflict), "{error}");

    // The other pod gets the volume once it is unmounted, also for the node.
    let may_end = Arc::new(Notify::new());
    world.fault("tear_down", Fault::Waits(may_end.clone()));
    let (volumes, ended) = (agent.volumes.clone(), a.clone());
    let ending = tokio::spawn(async move { volumes.wait_for_unmount(&ended).await });
    sleep(Duration::from_secs(1)).await;
    let (volumes, starts) = (agent.volumes.clone(), b.clone());
    let starting = tokio::spawn(async move { volumes.wait_for_attach_and_mount(&starts).await });
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.calls(), ["tear_down uid-a/pv"]);
    may_end.notify_one();
    ending.await.unwrap().unwrap();
    starting.await.unwrap().unwrap();
    let mounts = [
        format!("mount_device pv {of_b}"),
        format!("set_up uid-b/pv {of_b}"),
    ];
    assert_eq!(world.calls()[0], "unmount_device pv");
    agent.stop().await;

    // The pod that comes up again after a restart keeps it.
    let agent = self::agent(&world);
    agent.volumes.wait_for_attach_and_mount(&b).await.unwrap();
    let mut expected = vec!["reconstruct uid-b/pv".to_owned()];
    expected.extend(mounts);
    assert_eq!(world.calls(), expected);
    agent.stop().await;

    // Another pod does not get what an earlier agent mounted.
    let agent = self::agent(&world);
    let (volumes, starts) = (agent.volumes.clone(), a.clone());
    let starting = tokio::spawn(async move { volumes.wait_for_attach_and_mount(&starts).await });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.calls(), ["reconstruct uid-b/pv"]);
    agent.volumes.unmount_orphaned(&b.uid()).await.unwrap();
    starting.await.unwrap().unwrap();
    let calls = world.calls();
    assert_eq!(calls[..2], ["tear_down uid-b/pv", "unmount_device pv"]);
    assert_eq!(calls[2], format!("mount_device pv {of_a}"));
    assert_eq!(*world.events.lock(), [""; 0]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_selinux_no_volume_has_a_context() {
    let world = world();
    let agent = world.agent();
    let pod = leveled("a", "s0:c1");
    agent.volumes.wait_for_attach_and_mount(&pod).await.unwrap();
    assert_eq!(world.calls(), ["mount_device pv", "set_up uid-a/pv"]);
    let mounted = agent.volumes.mounted_volumes(&pod.uid());
    assert!(mounted["data"].selinux_relabel);
    agent.stop().await;
}
