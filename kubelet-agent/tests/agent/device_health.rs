//! The health of devices of a plugin and of a DRA driver in the status of a pod, as soon as it changes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kubelet_agent::{NodeAgent, Settings};
use kubelet_resources::dra::health_v1alpha1::{DeviceHealth, DeviceIdentifier, HealthStatus};
use kubelet_testing::dra_driver::MemoryDra;
use kubelet_testing::{ApiServer, MemoryCri, MemoryDevicePlugin, PodBuilder, User, eventually};
use serde_json::{from_value, json};
use tokio_util::sync::CancellationToken;

use crate::handle::clock;

const NODE: &str = "node-1";
const GPU: &str = "example.com/gpu";
const DRIVER: &str = "nic.example.com";

fn health(status: HealthStatus, message: &str) -> Vec<DeviceHealth> {
    vec![DeviceHealth {
        device: Some(DeviceIdentifier {
            pool_name: "pool".to_owned(),
            device_name: "dev-nic".to_owned(),
        }),
        health: status.into(),
        message: message.to_owned(),
        ..DeviceHealth::default()
    }]
}

/// `RESOURCE: ID=HEALTH[ (MESSAGE)]` of the pod's containers, as the API server has it.
fn shown(server: &ApiServer) -> Option<Vec<String>> {
    let status = server.get::<Pod>("default", "train").unwrap()?.status?;
    let containers: Vec<ContainerStatus> = status.container_statuses?;
    let all = containers
        .into_iter()
        .flat_map(|container| container.allocated_resources_status.unwrap_or_default());
    let all = all.map(|resource| {
        let devices = resource.resources.unwrap_or_default().into_iter().map(|device| {
            let message = device.message.map(|message| format!(" ({message})"));
            let (health, message) = (device.health.unwrap_or_default(), message.unwrap_or_default());
            format!("{}={health}{message}", device.resource_id)
        });
        format!("{}: {}", resource.name, Vec::from_iter(devices).join(" "))
    });
    Some(all.collect())
}

#[tokio::test]
async fn a_status_follows_the_health_of_devices() {
    let folder = tempfile::tempdir().unwrap();
    let server = ApiServer::builder().claim_controllers().build();
    let mut settings = Settings::new(folder.path());
    settings.node_name = NODE.to_owned();
    settings.node_ip = "127.0.0.1".to_owned();
    // Nothing but the change itself makes the agent sync the pod.
    settings.configuration.sync_frequency =
        kubelet_config::kubelet_configuration::GoDuration::from_secs(24 * 60 * 60);
    let cri = Arc::new(MemoryCri::new(clock()));
    let agent = NodeAgent::builder(settings)
        .services(cri.clone(), cri.clone())
        .client(server.client_as(User::node(NODE)))
        .build()
        .await
        .unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(agent.run(shutdown.clone()));

    let plugins = folder.path().join("device-plugins");
    let (kubelet, registry) = (
        plugins.join("kubelet.sock"),
        folder.path().join("plugins_registry"),
    );
    eventually!(kubelet.exists() && registry.exists(), |exists| *exists);
    let plugin = MemoryDevicePlugin::new(GPU).device("a", []);
    let served_plugin = plugin.serve(&plugins.join("gpu.sock")).unwrap();
    served_plugin.register(&kubelet, "v1beta1").await.unwrap();
    let offered = || {
        let node = server
            .get::<k8s_openapi::api::core::v1::Node>("", NODE)
            .unwrap()?;
        Some(node.status?.allocatable?.remove(GPU)?.0)
    };
    eventually!(offered(), |offered| offered.as_deref() == Some("1"));
    let driver = MemoryDra::new(DRIVER);
    let mut served_driver = driver.serve(&folder.path().join("dra.sock")).unwrap();
    served_driver
        .register(&registry.join("nic.sock"), &["v1.DRAPlugin"])
        .unwrap();
    served_driver.registered().await.unwrap();

    let create = |value| from_value(value).unwrap();
    let (class, slice, claim): (DeviceClass, ResourceSlice, ResourceClaim) = (
        from_value(json!({
            "metadata": {"name": "nic"},
            "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]},
        }))
        .unwrap(),
        from_value(json!({
            "metadata": {"name": "slice"},
            "spec": {
                "driver": DRIVER,
                "nodeName": NODE,
                "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "dev-nic"}],
            },
        }))
        .unwrap(),
        create(json!({
            "metadata": {"name": "nic", "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nic"}}]}},
        })),
    );
    server.create(&class).unwrap();
    server.create(&slice).unwrap();
    server.create(&claim).unwrap();
    let pod = PodBuilder::new("train").node_name(NODE);
    let pod = pod.container("main", "train", |container| {
        container.limit(GPU, "1").request(GPU, "1").with(|container| {
            let resources = container.resources.get_or_insert_default();
            resources.claims = Some(vec![
                from_value(json!({"name": "nic", "request": "nic"})).unwrap(),
            ]);
        })
    });
    let pod = pod.spec(|spec| {
        spec.resource_claims = Some(vec![
            from_value(json!({"name": "nic", "resourceClaimName": "nic"})).unwrap(),
        ]);
    });
    server.create(&*pod.build()).unwrap();

    let expect = async |gpu: &str, nic: &str| {
        let expected = [
            format!("{GPU}: a={gpu}"),
            format!("claim:nic/nic: {DRIVER}/device=nic={nic}"),
        ];
        eventually!(shown(&server), |shown| shown
            .as_ref()
            .is_some_and(|shown| *shown == expected));
    };
    expect("Healthy", "Unknown").await;
    plugin.set_healthy("a", false);
    expect("Unhealthy", "Unknown").await;
    driver.report_health(health(HealthStatus::Unhealthy, "hot"));
    expect("Unhealthy", "Unhealthy (hot)").await;
    plugin.set_healthy("a", true);
    driver.report_health(health(HealthStatus::Healthy, ""));
    expect("Healthy", "Healthy").await;
    // The driver is gone: nobody knows how its device is. The plugin's last report stays.
    served_driver.stop().await;
    served_plugin.stop().await;
    expect("Healthy", "Unknown").await;
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
