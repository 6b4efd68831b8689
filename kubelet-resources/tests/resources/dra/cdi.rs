//! The CDI devices of a container.

use kubelet_core::DynamicResources as _;
use kubelet_resources::dra::DraGates;
use kubelet_resources::dra::v1::Device;
use serde_json::json;

use super::fixture::{DRIVER, World, changed, claim, pod};

fn device(name: &str, requests: &[&str]) -> Device {
    Device {
        request_names: requests.iter().map(ToString::to_string).collect(),
        pool_name: "pool".to_owned(),
        device_name: name.to_owned(),
        cdi_device_ids: vec![format!("gpu={name}")],
        share_id: None,
    }
}

/// What the container asks of the claim `a`, and what it gets.
#[tokio::test(start_paused = true)]
async fn a_container_gets_the_devices_of_its_requests() {
    let world = World::new();
    let manager = world.manager().await;
    let driver = world.driver(&manager, DRIVER).await;
    driver.set_devices(
        "a",
        vec![
            device("one", &["first"]),
            device("two", &["second", "third"]),
            device("sub", &["fourth/small"]),
            device("any", &[]),
            Device {
                cdi_device_ids: Vec::new(),
                ..device("none", &["first"])
            },
        ],
    );
    world.api.put(claim("a", &[DRIVER], &["p"]));
    let handle = manager.handle();
    let all = ["gpu=one", "gpu=two", "gpu=sub", "gpu=any"];
    let table = [
        (json!([]), vec![]),
        (json!([{"name": "a"}]), all.to_vec()),
        (
            json!([{"name": "a", "request": "first"}]),
            vec!["gpu=one", "gpu=any"],
        ),
        (
            json!([{"name": "a", "request": "third"}]),
            vec!["gpu=two", "gpu=any"],
        ),
        (
            json!([{"name": "a", "request": "fourth/small"}]),
            vec!["gpu=sub", "gpu=any"],
        ),
        // The driver names the subrequest that was allocated.
        (json!([{"name": "a", "request": "fourth"}]), vec!["gpu=any"]),
        (
            json!([{"name": "a", "request": "second"}, {"name": "a", "request": "first"}]),
            vec!["gpu=two", "gpu=any", "gpu=one"],
        ),
        (json!([{"name": "other"}]), vec![]),
    ];
    handle.prepare(&pod("p", &["a"])).await.unwrap();
    for (claims, expected) in table {
        let pod = changed(
            &pod("p", &["a"]),
            &json!({"spec": {"containers": [{"name": "c", "resources": {"claims": claims}}]}}),
        );
        let container = &pod.spec.as_ref().unwrap().containers[0];
        assert_eq!(handle.cdi_devices(&pod, container).unwrap(), expected, "{claims}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_prepared_is_an_error() {
    let world = World::new();
    let manager = world.manager().await;
    let pod = pod("p", &["a"]);
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let error = manager.handle().cdi_devices(&pod, container).unwrap_err();
    assert_eq!(
        error.to_string(),
        "internal error: unable to get claim info for ResourceClaim a in namespace default"
    );
    let error = manager.handle().claims_of(&pod, container).unwrap_err();
    assert_eq!(error.to_string(), "unable to get information for ResourceClaim a");
}

/// The scheduler made a claim for the extended resources of the pod.
#[tokio::test(start_paused = true)]
async fn extended_resources_may_come_from_a_claim() {
    let pod = changed(
        &pod("p", &[]),
        &json!({
            "spec": {"containers": [
                {"name": "c", "resources": {"requests": {"example.com/gpu": "1", "cpu": "1", "example.com/none": "0"}}},
                {"name": "d", "resources": {"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}}},
                {"name": "e"},
            ]},
            "status": {"extendedResourceClaimStatus": {
                "resourceClaimName": "extended",
                "requestMappings": [
                    {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r0"},
                    {"containerName": "c", "resourceName": "example.com/none", "requestName": "r2"},
                    {"containerName": "c", "resourceName": "cpu", "requestName": "r2"},
                    {"containerName": "d", "resourceName": "deviceclass.resource.kubernetes.io/gpu", "requestName": "r1"},
                ],
            }},
        }),
    );
    let mut gates = DraGates::default();
    for is_on in [true, false] {
        gates.extended_resource = is_on;
        let world = World::new();
        let manager = world.manager_with(gates).await;
        let driver = world.driver(&manager, DRIVER).await;
        driver.set_devices(
            "extended",
            vec![
                device("zero", &["r0"]),
                device("one", &["r1"]),
                device("two", &["r2"]),
            ],
        );
        world.api.put(claim("extended", &[DRIVER], &["p"]));
        let handle = manager.handle();
        handle.prepare(&pod).await.unwrap();
        let containers = &pod.spec.as_ref().unwrap().containers;
        let devices = containers
            .iter()
            .map(|container| handle.cdi_devices(&pod, container).unwrap());
        let expected: [&[&str]; 3] = match is_on {
            true => [&["gpu=zero"], &["gpu=one"], &[]],
            false => [&[], &[], &[]],
        };
        assert_eq!(devices.collect::<Vec<_>>(), expected);
        assert_eq!(handle.claims().len(), usize::from(is_on));
        handle.unprepare(&pod).await.unwrap();
        assert!(driver.prepared().is_empty());
    }
}
