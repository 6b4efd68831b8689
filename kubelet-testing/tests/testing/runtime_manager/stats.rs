//! What running pods and images use.

use super::*;

#[tokio::test(start_paused = true)]
async fn stats_of_what_runs_and_of_images() {
    let rig = Rig::new().await;
    rig.cri.script("main", [Run::forever().uses(250, 64 << 20)]);
    rig.cri.script("once", [Run::exits(0)]);
    let web = pod("web");
    rig.sync(&web).await;
    rig.sync(&pod("db")).await;
    tokio::time::sleep(10 * SECOND).await;
    let stats = rig.manager.pod_stats().await.unwrap();
    assert_eq!(stats.len(), 2);
    let of_web = stats.iter().find(|stats| stats.key == web.key()).unwrap();
    assert_eq!(of_web.uid, web.uid());
    let nano_cores = |cpu: &Option<v1::CpuUsage>| {
        cpu.as_ref()
            .and_then(|cpu| cpu.usage_nano_cores.as_ref())
            .map(|rate| rate.value)
    };
    assert!(
        nano_cores(&of_web.cpu) > Some(250_000_000),
        "with its other containers"
    );
    assert!(of_web.memory.is_some() && of_web.network.is_some() && of_web.processes == Some(3));
    let names: Vec<_> = of_web
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    assert_eq!(names, ["main", "term"], "what has ended uses nothing");
    let main = &of_web.containers[0];
    assert_eq!(
        main.memory
            .as_ref()
            .unwrap()
            .working_set_bytes
            .as_ref()
            .unwrap()
            .value,
        64 << 20
    );
    assert_eq!(nano_cores(&main.cpu), Some(250_000_000));
    assert!(main.writable_layer.is_some() && main.started_at.is_some());
    assert_eq!(rig.asked(Call::ListContainerStats), 0);

    let images = rig.manager.image_fs_info().await.unwrap();
    assert_eq!(images.image_filesystems.len(), 1);
    assert!(images.image_filesystems[0].used_bytes.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_usage_for_the_stats_of_the_node() {
    let rig = Rig::new().await;
    rig.cri.script("main", [Run::forever().uses(250, 64 << 20)]);
    let web = pod("web");
    rig.sync(&web).await;
    tokio::time::sleep(10 * SECOND).await;
    let usages: &dyn RuntimeUsages = &rig.manager;
    let list = usages.list().await.unwrap();
    let [sandbox] = &list.sandboxes[..] else {
        panic!("{list:?}")
    };
    assert_eq!(
        (&*sandbox.pod, &*sandbox.uid, sandbox.ready),
        ("web", web.uid().as_str(), true)
    );
    assert!(
        list.containers
            .iter()
            .all(|container| container.sandbox_id == sandbox.id)
    );
    let main = list
        .containers
        .iter()
        .find(|container| container.name == "main")
        .unwrap();
    assert!(main.running && main.created_at.is_some() && !main.image.is_empty());

    let containers = usages.container_usages().await.unwrap();
    let of_main = containers.iter().find(|usage| usage.id == main.id).unwrap();
    assert_eq!(of_main.cpu.as_ref().unwrap().usage_nano_cores, Some(250_000_000));
    assert_eq!(of_main.memory.as_ref().unwrap().working_set, Some(64 << 20));
    assert!(!of_main.writable_layer.as_ref().unwrap().mountpoint.is_empty());
    let pods = usages.pod_usages().await.unwrap().unwrap();
    assert_eq!(
        (&pods[0].sandbox_id, pods[0].containers.len()),
        (&sandbox.id, containers.len())
    );
    assert!(pods[0].network.is_some() && pods[0].processes.is_some());
    assert_eq!(usages.file_systems().await.unwrap().images.len(), 1);
    let described: Vec<String> = usages
        .metric_descriptors()
        .await
        .unwrap()
        .into_iter()
        .map(|metric| metric.name)
        .collect();
    let metrics = usages.metrics().await.unwrap();
    assert!(!metrics.is_empty() && metrics.iter().all(|metric| described.contains(&metric.name)));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_without_stats_of_sandboxes_is_asked_once_and_tells_of_containers() {
    let rig = Rig::new().await;
    let missing = || rig.cri.faults().on(Call::ListPodSandboxStats);
    missing().fails(Code::Unimplemented, "unknown method ListPodSandboxStats");
    rig.cri.script("main", [Run::forever().uses(250, 64 << 20)]);
    let web = pod("web");
    rig.sync(&web).await;
    for _ in 0..3 {
        let stats = rig.manager.pod_stats().await.unwrap();
        let [of_web] = &stats[..] else { panic!("{stats:?}") };
        assert_eq!(
            (&of_web.key, of_web.cpu.is_none(), of_web.network.is_none()),
            (&web.key(), true, true)
        );
        assert_eq!(of_web.containers.len(), 3);
        assert!(of_web.containers.iter().all(|container| container.cpu.is_some()));
    }
    assert_eq!(
        (
            rig.asked(Call::ListPodSandboxStats),
            rig.asked(Call::ListContainerStats)
        ),
        (1, 3)
    );

    // A call that fails does not count as missing.
    let rig = Rig::new().await;
    rig.cri
        .faults()
        .on(Call::ListPodSandboxStats)
        .first(1)
        .fails(Code::Unknown, "broken");
    assert_eq!(
        told(rig.manager.pod_stats().await),
        (Code::Unknown, "broken".to_owned())
    );
    rig.manager.pod_stats().await.unwrap();
}
