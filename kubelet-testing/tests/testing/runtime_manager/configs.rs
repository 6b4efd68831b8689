//! What the runtime is told of the node and of pods: cgroups, user namespaces, resizes, addresses.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_cgroup_driver_is_the_runtimes_where_it_tells() {
    let cgroup_parent = async |driver: CgroupDriver, lacks: bool| {
        let rig = Rig::with(|builder| builder.cgroup_driver(v1::CgroupDriver::Systemd)).await;
        if lacks {
            rig.cri
                .faults()
                .on(Call::RuntimeConfig)
                .fails(Code::Unimplemented, "unknown method RuntimeConfig");
        }
        let dir = tempfile::tempdir().unwrap();
        let mut node = NodeSettings::default();
        node.cgroup_driver = driver;
        let manager = manager(&rig.cri, rig.clock, &dir, node).build().await.unwrap();
        let rig = Rig {
            manager,
            _dir: dir,
            ..rig
        };
        rig.sync(&pod("web")).await;
        let calls = rig.cri.calls().all();
        let run = calls
            .iter()
            .find_map(|call| call.request::<v1::RunPodSandboxRequest>())
            .unwrap();
        let parent = run
            .config
            .as_ref()
            .unwrap()
            .linux
            .as_ref()
            .unwrap()
            .cgroup_parent
            .clone();
        (
            parent.split("pod").next().unwrap().to_owned() + &parent[parent.len() - 6..],
            rig.asked(Call::RuntimeConfig),
        )
    };
    let root = || String::from("/");
    let (parent, asked) = cgroup_parent(CgroupDriver::Cgroupfs { root: root() }, false).await;
    assert!(
        parent.ends_with(".slice") && asked == 1,
        "{parent}, asked {asked} times"
    );
    let (parent, asked) = cgroup_parent(CgroupDriver::Cgroupfs { root: root() }, true).await;
    assert!(
        !parent.ends_with(".slice") && asked == 1,
        "{parent}, asked {asked} times"
    );
    let asked_of_none = {
        let rig = Rig::new().await;
        rig.asked(Call::RuntimeConfig)
    };
    assert_eq!(asked_of_none, 0, "pods in no cgroups need no driver");
}

/// The id mapping in a pod's requests: first id and size. Sandbox, containers and mounts have the same.
fn told_ids(cri: &MemoryCri, pod: &str) -> Vec<(u32, u32)> {
    let mut told = Vec::new();
    let mut tell = |options: &Option<v1::NamespaceOption>, mounts: &[v1::Mount]| {
        let userns = options.as_ref().unwrap().userns_options.as_ref().unwrap();
        assert_eq!(userns.mode(), v1::NamespaceMode::Pod);
        assert_eq!(userns.uids, userns.gids);
        for mount in mounts {
            assert_eq!(
                (&mount.uid_mappings, &mount.gid_mappings),
                (&userns.uids, &userns.gids)
            );
        }
        let ids = userns.uids[0];
        assert_eq!((userns.uids.len(), ids.container_id), (1, 0));
        told.push((ids.host_id, ids.length));
    };
    for call in cri.calls().all().iter().filter(|call| call.about.pod == pod) {
        if let Some(request) = call.request::<v1::RunPodSandboxRequest>() {
            let linux = request.config.as_ref().unwrap().linux.as_ref().unwrap();
            tell(&linux.security_context.as_ref().unwrap().namespace_options, &[]);
        }
        if let Some(request) = call.request::<v1::CreateContainerRequest>() {
            let config = request.config.as_ref().unwrap();
            let linux = config.linux.as_ref().unwrap();
            assert!(!config.mounts.is_empty());
            tell(
                &linux.security_context.as_ref().unwrap().namespace_options,
                &config.mounts,
            );
        }
    }
    told
}

fn with_user_namespace(name: &str) -> Arc<Pod> {
    PodBuilder::new(name)
        .container("main", "docker.io/library/busybox:1.36", |container| container)
        .spec(|spec| spec.host_users = Some(false))
        .build()
}

#[tokio::test(start_paused = true)]
async fn each_user_namespace_has_ids_of_its_own_also_for_the_next_agent() {
    const IDS: u32 = 65_536;
    let mut rig = Rig::new().await;
    for name in ["a", "b"] {
        rig.sync(&with_user_namespace(name)).await;
    }
    assert_eq!(told_ids(&rig.cri, "a"), [(IDS, IDS); 2]);
    assert_eq!(told_ids(&rig.cri, "b"), [(2 * IDS, IDS); 2]);

    rig.manager = manager(&rig.cri, rig.clock, &rig._dir, NodeSettings::default())
        .build()
        .await
        .unwrap();
    rig.sync(&with_user_namespace("c")).await;
    assert_eq!(told_ids(&rig.cri, "c"), [(3 * IDS, IDS); 2]);
    let b = with_user_namespace("b");
    rig.cri.end(&b.uid(), "main", 1);
    rig.sync(&b).await;
    assert_eq!(told_ids(&rig.cri, "b"), [(2 * IDS, IDS); 3]);
}

fn of_size(cpu: &str, memory: &str) -> Arc<Pod> {
    let list = serde_json::json!({"cpu": cpu, "memory": memory});
    let resources = serde_json::json!({"requests": list, "limits": list});
    PodBuilder::new("a")
        .container("main", "docker.io/library/busybox:1.36", |container| {
            container.with(|main| main.resources = Some(serde_json::from_value(resources).unwrap()))
        })
        .spec(|spec| {
            let overhead = serde_json::json!({"cpu": "500m", "memory": "100"});
            spec.overhead = Some(serde_json::from_value(overhead).unwrap());
        })
        .build()
}

/// The resize calls since then: for the pod (shares, quota, memory), or for its container.
fn resizes(cri: &MemoryCri, since: usize) -> Vec<Option<[i64; 3]>> {
    let mut resizes = Vec::new();
    for call in &cri.calls().all()[since..] {
        if let Some(request) = call.request::<v1::UpdatePodSandboxResourcesRequest>() {
            let overhead = request.overhead.as_ref().unwrap();
            assert_eq!((overhead.cpu_shares, overhead.memory_limit_in_bytes), (512, 100));
            let pod = request.resources.as_ref().unwrap();
            assert_eq!(pod.cpu_period, 100_000);
            resizes.push(Some([pod.cpu_shares, pod.cpu_quota, pod.memory_limit_in_bytes]));
        }
        if call.call == Call::UpdateContainerResources {
            resizes.push(None);
        }
    }
    resizes
}

#[tokio::test(start_paused = true)]
async fn a_runtime_is_told_of_a_whole_pod_before_it_gets_more_and_after_it_gets_less() {
    let rig = Rig::new().await;
    rig.sync(&of_size("2", "1000")).await;
    let since = rig.cri.calls().all().len();
    rig.sync(&of_size("1", "3000")).await;
    let expected = [
        Some([2048, 200_000, 3000]),
        None,
        None,
        Some([1024, 200_000, 3000]),
        Some([1024, 100_000, 3000]),
    ];
    assert_eq!(resizes(&rig.cri, since), expected);

    let since = rig.cri.calls().all().len();
    rig.sync(&of_size("3", "3000")).await;
    assert_eq!(
        resizes(&rig.cri, since),
        [Some([1024, 300_000, 3000]), Some([3072, 300_000, 3000]), None]
    );
    let since = rig.cri.calls().all().len();
    rig.sync(&of_size("3", "3000")).await;
    assert_eq!(resizes(&rig.cri, since), []);
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_the_runtime_rejects_is_not_done_and_one_that_it_is_not_told_of_is() {
    let rig = Rig::new().await;
    let first = rig.sync(&of_size("1", "1000")).await;
    let faults = rig.cri.faults();
    faults
        .on(Call::UpdatePodSandboxResources)
        .fails(Code::Internal, "no");
    let resized = of_size("2", "1000");
    let result = rig.manager.sync_pod(&resized, &first).await;
    let failure = result.results[0].failure.clone().unwrap();
    assert!(
        failure.message.contains("(resource=cpu); resize rejected"),
        "{}",
        failure.message
    );
    assert_eq!(rig.asked(Call::UpdateContainerResources), 0);

    faults.clear();
    faults
        .on(Call::UpdatePodSandboxResources)
        .fails(Code::Unimplemented, "unknown method");
    rig.sync(&resized).await;
    rig.sync(&of_size("1", "1000")).await;
    assert_eq!(rig.asked(Call::UpdateContainerResources), 2);
    assert_eq!(
        rig.asked(Call::UpdatePodSandboxResources),
        2,
        "it is asked once more, and then no more"
    );
}

#[tokio::test]
async fn a_runtime_is_told_the_pod_cidrs() {
    let rig = Rig::new().await;
    let runtime = CriNodeRuntime::new(Arc::new(rig.cri.clone()), "memory");
    let cidrs = "10.0.1.0/24,fd00:0:0:1::/64";
    runtime.update_pod_cidr(cidrs).await.unwrap();
    let calls = rig.cri.calls().all();
    let told: Vec<_> = calls
        .iter()
        .filter_map(|call| {
            call.request::<v1::UpdateRuntimeConfigRequest>()?
                .runtime_config
                .as_ref()
        })
        .filter_map(|config| config.network_config.as_ref())
        .map(|network| network.pod_cidr.as_str())
        .collect();
    assert_eq!(told, [cidrs]);
}
