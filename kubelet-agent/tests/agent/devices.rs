//! A device plugin registers, the node offers its devices, and a container gets them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kubelet_agent::{NodeAgent, Settings};
use kubelet_cri::v1;
use kubelet_resources::devices::v1beta1::{CdiDevice, ContainerAllocateResponse, DeviceSpec};
use kubelet_testing::{ApiServer, MemoryCri, MemoryDevicePlugin, PodBuilder, User, eventually};
use tokio_util::sync::CancellationToken;

use crate::handle::clock;

const NODE: &str = "node-1";
const GPU: &str = "example.com/gpu";

#[tokio::test]
async fn a_container_gets_the_devices_of_a_plugin() {
    let (folder, server) = (tempfile::tempdir().unwrap(), ApiServer::new());
    let mut settings = Settings::new(folder.path());
    settings.node_name = NODE.to_owned();
    settings.node_ip = "127.0.0.1".to_owned();
    settings.configuration.node_status_update_frequency =
        kubelet_config::kubelet_configuration::GoDuration::from_secs(1);
    let cri = Arc::new(MemoryCri::new(clock()));
    let agent = NodeAgent::builder(settings)
        .services(cri.clone(), cri.clone())
        .client(server.client_as(User::node(NODE)))
        .build()
        .await
        .unwrap();
    let (shutdown, health) = (CancellationToken::new(), agent.handle().health().clone());
    let running = tokio::spawn(agent.run(shutdown.clone()));

    let plugins = folder.path().join("device-plugins");
    let kubelet = plugins.join("kubelet.sock");
    eventually!(kubelet.exists(), |exists| *exists);
    let registers = health.look(|name| name == "device-plugin");
    assert_eq!(registers, [("device-plugin".into(), true)]);
    let answer = |ids: &std::collections::BTreeSet<String>| ContainerAllocateResponse {
        envs: [("GPUS".to_owned(), Vec::from_iter(ids.clone()).join(","))].into(),
        devices: vec![DeviceSpec {
            container_path: "/dev/gpu".into(),
            host_path: "/dev/null".into(),
            permissions: "rw".into(),
        }],
        cdi_devices: vec![CdiDevice {
            name: "example.com/gpu=0".into(),
        }],
        ..Default::default()
    };
    let plugin = MemoryDevicePlugin::new(GPU).device("a", []).device("b", []);
    let plugin = plugin.answering(answer);
    let served = plugin.serve(&plugins.join("gpu.sock")).unwrap();
    served.register(&kubelet, "v1beta1").await.unwrap();
    plugin.set_healthy("b", false);

    let offered = || {
        let status = server.get::<Node>("", NODE).unwrap()?.status?;
        Some((
            status.capacity?.remove(GPU)?.0,
            status.allocatable?.remove(GPU)?.0,
        ))
    };
    let expected = Some(("2".to_owned(), "1".to_owned()));
    eventually!(offered(), |offered| *offered == expected);
    let pod = PodBuilder::new("train").node_name(NODE);
    let pod = pod.container("main", "train", |container| {
        container.limit(GPU, "1").request(GPU, "1")
    });
    server.create(&*pod.build()).unwrap();
    let phase = || server.get::<Pod>("default", "train").unwrap()?.status?.phase;
    eventually!(phase(), |phase| phase.as_deref() == Some("Running"));

    let created = cri.calls().matching("CreateContainer train/main");
    let request = created[0].request::<v1::CreateContainerRequest>().unwrap();
    let config = request.config.as_ref().unwrap();
    assert!(
        config
            .envs
            .iter()
            .any(|env| env.key == "GPUS" && env.value == b"a")
    );
    assert_eq!(config.devices[0].container_path, "/dev/gpu");
    assert_eq!(config.cdi_devices[0].name, "example.com/gpu=0");

    // The plugin is gone: the node does not offer its devices, and a new pod is rejected.
    served.stop().await;
    let expected = Some(("2".to_owned(), "0".to_owned()));
    eventually!(offered(), |offered| *offered == expected);
    let second = PodBuilder::new("second").node_name(NODE);
    let second = second.container("main", "train", |container| {
        container.limit(GPU, "1").request(GPU, "1")
    });
    server.create(&*second.build()).unwrap();
    let rejected = || server.get::<Pod>("default", "second").unwrap()?.status?.message;
    let message = eventually!(rejected(), |message| message.is_some()).unwrap();
    assert_eq!(
        message,
        "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices \
         example.com/gpu, which is unexpected"
    );
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
