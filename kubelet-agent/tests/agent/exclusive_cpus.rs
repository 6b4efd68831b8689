//! A container gets CPUs of its own, and leaves them when its pod is gone.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_agent::{NodeAgent, Settings};
use kubelet_config::kubelet_configuration::GoDuration;
use kubelet_cri::v1;
use kubelet_resources::{Core, Machine, NumaNode};
use kubelet_testing::{ApiServer, MemoryCri, PodBuilder, User, eventually};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::handle::clock;

const NODE: &str = "node-1";

/// One NUMA node with four cores, each of one CPU.
fn machine() -> Machine {
    let core = |id| Core {
        id,
        threads: vec![id],
        ..Core::default()
    };
    Machine {
        nodes: vec![NumaNode {
            memory: 8 << 30,
            cores: (0..4).map(core).collect(),
            ..NumaNode::default()
        }],
    }
}

fn pod(name: &str, cpus: &str) -> Arc<Pod> {
    let pod = PodBuilder::new(name).node_name(NODE);
    let pod = pod.container("main", "work", |container| {
        let container = container.request("cpu", cpus).request("memory", "1Gi");
        container.limit("cpu", cpus).limit("memory", "1Gi")
    });
    pod.build()
}

#[tokio::test]
async fn a_container_has_cpus_of_its_own_while_its_pod_is_there() {
    let (folder, server) = (tempfile::tempdir().unwrap(), ApiServer::new());
    let mut settings = Settings::new(folder.path());
    settings.node_name = NODE.to_owned();
    settings.node_ip = "127.0.0.1".to_owned();
    settings.configuration.cpu_manager_policy = "static".to_owned();
    settings.configuration.reserved_system_cpus = "0".to_owned();
    settings.configuration.cpu_manager_reconcile_period = GoDuration::from_secs(1);
    let cri = Arc::new(MemoryCri::new(clock()));
    let agent = NodeAgent::builder(settings)
        .services(cri.clone(), cri.clone())
        .client(server.client_as(User::node(NODE)))
        .machine(kubelet_node::MachineInfo::new(4, 8 << 30))
        .numa_nodes(machine())
        .build()
        .await
        .unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(agent.run(shutdown.clone()));

    let phase = |name: &str| server.get::<Pod>("default", name).unwrap()?.status?.phase;
    for (name, cpus) in [("whole", "2"), ("shared", "500m")] {
        server.create(&*pod(name, cpus)).unwrap();
        eventually!(phase(name), |phase| phase.as_deref() == Some("Running"));
    }
    let created = |name: &str| {
        let calls = cri.calls().matching(&format!("CreateContainer {name}/main"));
        let request = calls[0].request::<v1::CreateContainerRequest>().unwrap();
        let config = request.config.as_ref().unwrap();
        config.linux.clone().unwrap().resources.unwrap()
    };
    let whole = created("whole");
    assert_eq!((whole.cpuset_cpus.as_str(), whole.cpu_quota), ("1-2", -1));
    assert_eq!(whole.cpu_shares, 2048);
    let shared = created("shared");
    assert_eq!((shared.cpuset_cpus.as_str(), shared.cpu_quota), ("0,3", 50_000));

    // The state is a file of its own, so that the next agent finds it.
    let state = || -> Value {
        let state = std::fs::read(folder.path().join("cpu_manager_state")).unwrap();
        serde_json::from_slice(&state).unwrap()
    };
    let uid = server
        .get::<Pod>("default", "whole")
        .unwrap()
        .unwrap()
        .metadata
        .uid
        .unwrap();
    assert_eq!(state()["entries"], json!({uid: {"main": "1-2"}}));

    // A pod that needs more than is left is rejected.
    server.create(&*pod("more", "3")).unwrap();
    eventually!(phase("more"), |phase| phase.as_deref() == Some("Failed"));

    server.delete::<Pod>("default", "whole").unwrap();
    eventually!(state()["defaultCpuSet"].clone(), |cpus| *cpus == "0-3");
    // The container that shares its CPUs gets them back.
    let updated = || {
        let calls = cri.calls().matching("UpdateContainerResources shared/main");
        let request = calls.last()?.request::<v1::UpdateContainerResourcesRequest>()?;
        Some(request.linux.as_ref()?.cpuset_cpus.clone())
    };
    eventually!(updated(), |cpus| cpus.as_deref() == Some("0-3"));
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
