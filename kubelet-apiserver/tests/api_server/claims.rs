//! Resource claims: their objects, the controllers that allocate devices, and what a node may do with them.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_client::{Api, Error};
use kubelet_apiserver::{ApiServer, User};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) fn of<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn claim(name: &str, request: &Value) -> ResourceClaim {
    of(json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}}}))
}

fn slice(node: &str, devices: &[&str]) -> ResourceSlice {
    let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
    of(
        json!({"metadata": {"name": format!("gpus-of-{node}")}, "spec": {"driver": "gpu.example.com", "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices}}),
    )
}

fn pod(name: &str, entries: &Value) -> Pod {
    of(
        json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": "one", "resourceClaims": entries,
        "containers": [{"name": "main", "image": "busybox"}]}}),
    )
}

fn with_devices(devices: &[&str]) -> ApiServer {
    let server = ApiServer::builder().claim_controllers().build();
    let class = json!({"metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == \"gpu.example.com\""}}]}});
    server.create(&of::<DeviceClass>(class)).unwrap();
    server.create(&slice("one", devices)).unwrap();
    server.create(&slice("two", &["other"])).unwrap();
    server
}

fn get(server: &ApiServer, name: &str) -> ResourceClaim {
    server.get("default", name).unwrap().unwrap()
}

/// The devices allocated to a claim, by request.
fn allocated(server: &ApiServer, name: &str) -> Vec<(String, String)> {
    let status = get(server, name).status.unwrap_or_default();
    let devices = status.allocation.and_then(|allocation| allocation.devices);
    let results = devices.and_then(|devices| devices.results).unwrap_or_default();
    results.into_iter().map(|it| (it.request, it.device)).collect()
}

fn consumers(server: &ApiServer, name: &str) -> Vec<String> {
    let status = get(server, name).status.unwrap_or_default();
    let reserved = status.reserved_for.unwrap_or_default();
    reserved.into_iter().map(|consumer| consumer.name).collect()
}

fn device(name: &str) -> Vec<(String, String)> {
    vec![("r".to_owned(), name.to_owned())]
}

#[tokio::test]
async fn claims_get_their_defaults_and_are_validated() {
    let server = ApiServer::new();
    let created = server
        .create(&claim("a", &json!({"deviceClassName": "gpu"})))
        .unwrap();
    let requests = created.spec.devices.unwrap().requests.unwrap();
    let exactly = requests[0].exactly.as_ref().unwrap();
    assert_eq!(
        (exactly.allocation_mode.as_deref(), exactly.count),
        (Some("ExactCount"), Some(1))
    );
    let claims = Api::<ResourceClaim>::namespaced(server.client(), "default");
    for (request, text) in [
        (
            json!({}),
            "spec.devices.requests[0].exactly.deviceClassName: Required value",
        ),
        (
            Value::Null,
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
        ),
    ] {
        let wrong = json!({"metadata": {"name": "b"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}}});
        let Err(Error::Api(status)) = claims.create(&PostParams::default(), &of(wrong)).await else {
            panic!("created")
        };
        assert!(status.message.contains(text), "{}", status.message);
    }
    // The spec does not change, and the status only through its subresource.
    let patch =
        json!({"spec": {"devices": {"requests": [{"name": "s", "exactly": {"deviceClassName": "gpu"}}]}}});
    let patched = claims
        .patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    assert!(matches!(patched, Err(Error::Api(status)) if status.message.contains("field is immutable")));
    let status = json!({"status": {"allocation": {"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "p", "device": "x"}]}}}});
    let patch = Patch::Merge(&status);
    let patched = claims.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.status.and_then(|status| status.allocation), None);
    claims
        .patch_status("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(allocated(&server, "a"), device("x"));
}

#[tokio::test]
async fn a_device_goes_to_one_claim_and_is_free_after_its_pods() {
    let server = with_devices(&["gpu-0"]);
    for name in ["a", "b"] {
        server
            .create(&claim(name, &json!({"deviceClassName": "gpu"})))
            .unwrap();
    }
    let uses = |name: &str, claim: &str| pod(name, &json!([{"name": "gpu", "resourceClaimName": claim}]));
    server.create(&uses("p", "a")).unwrap();
    server.create(&uses("q", "a")).unwrap();
    server.create(&uses("waits", "b")).unwrap();
    assert_eq!(allocated(&server, "a"), device("gpu-0"));
    assert_eq!(consumers(&server, "a"), ["p", "q"]);
    assert!(allocated(&server, "b").is_empty() && consumers(&server, "b").is_empty());

    let pods = Api::<Pod>::namespaced(server.client(), "default");
    let ended = json!({"status": {"phase": "Succeeded"}});
    pods.patch_status("p", &PatchParams::default(), &Patch::Merge(&ended))
        .await
        .unwrap();
    assert_eq!(consumers(&server, "a"), ["q"]);
    let now = DeleteParams::default().grace_period(0);
    pods.delete("q", &now).await.unwrap();
    assert!(allocated(&server, "a").is_empty());
    assert_eq!(allocated(&server, "b"), device("gpu-0"));
}

#[tokio::test]
async fn requests_choose_devices() {
    let server = with_devices(&["gpu-0", "gpu-1", "gpu-2"]);
    let sub = |name: &str, count: u32| json!({"name": name, "deviceClassName": "gpu", "count": count});
    let first_available: ResourceClaim = of(json!({"metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": [sub("many", 5), sub("one", 1)]}]}}}));
    server.create(&first_available).unwrap();
    server
        .create(&claim("d", &json!({"deviceClassName": "gpu", "count": 2})))
        .unwrap();
    server
        .create(&claim(
            "e",
            &json!({"deviceClassName": "gpu", "allocationMode": "All", "adminAccess": true}),
        ))
        .unwrap();
    server
        .create(&claim("f", &json!({"deviceClassName": "unknown"})))
        .unwrap();
    let entries: Vec<Value> = ["c", "d", "e", "f"]
        .iter()
        .map(|name| json!({"name": name, "resourceClaimName": name}))
        .collect();
    server.create(&pod("p", &json!(entries))).unwrap();
    let pairs = |request: &str, devices: &[&str]| -> Vec<(String, String)> {
        devices
            .iter()
            .map(|device| (request.to_owned(), (*device).to_owned()))
            .collect()
    };
    assert_eq!(allocated(&server, "c"), pairs("r/one", &["gpu-0"]));
    assert_eq!(allocated(&server, "d"), pairs("r", &["gpu-1", "gpu-2"]));
    // Who has admin access gets also devices that are in use.
    assert_eq!(allocated(&server, "e"), pairs("r", &["gpu-0", "gpu-1", "gpu-2"]));
    assert!(allocated(&server, "f").is_empty());
}

#[tokio::test]
async fn a_claim_is_made_from_a_template_and_goes_with_its_pod() {
    let server = with_devices(&["gpu-0"]);
    let template = json!({"metadata": {"name": "one-gpu", "namespace": "default"}, "spec": {"metadata": {"labels": {"a": "b"}},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}});
    server.create(&of::<ResourceClaimTemplate>(template)).unwrap();
    server
        .create(&pod(
            "p",
            &json!([{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]),
        ))
        .unwrap();
    let stored: Pod = server.get("default", "p").unwrap().unwrap();
    let statuses = stored.status.unwrap().resource_claim_statuses.unwrap();
    assert_eq!(statuses[0].name, "gpu");
    let name = statuses[0].resource_claim_name.clone().unwrap();
    assert_eq!(allocated(&server, &name), device("gpu-0"));
    let made = get(&server, &name);
    assert_eq!(made.metadata.labels.unwrap()["a"], "b");
    assert_eq!(made.metadata.owner_references.unwrap()[0].controller, Some(true));
    let pods = Api::<Pod>::namespaced(server.client(), "default");
    pods.delete("p", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert!(server.get::<ResourceClaim>("default", &name).unwrap().is_none());
}

#[tokio::test]
async fn a_node_reads_the_claims_of_its_pods_and_deletes_slices() {
    let server = with_devices(&["gpu-0"]);
    for name in ["a", "b"] {
        server
            .create(&claim(name, &json!({"deviceClassName": "gpu"})))
            .unwrap();
    }
    server
        .create(&pod("p", &json!([{"name": "gpu", "resourceClaimName": "a"}])))
        .unwrap();
    let client = server.client_as(User::node("one"));
    let claims = Api::<ResourceClaim>::namespaced(client.clone(), "default");
    claims.get("a").await.unwrap();
    let Err(Error::Api(status)) = claims.get("b").await else {
        panic!("read")
    };
    assert!(
        status
            .message
            .contains("no relationship found between node 'one' and this object"),
        "{}",
        status.message
    );
    let slices = Api::<ResourceSlice>::all(client);
    let wrong = ListParams::default().fields("spec.nodeName=one,spec.driver=other");
    slices
        .delete_collection(&DeleteParams::default(), &wrong)
        .await
        .unwrap();
    let names = || async {
        let slices = Api::<ResourceSlice>::all(server.client());
        let all = slices.list(&ListParams::default()).await.unwrap();
        all.items
            .into_iter()
            .map(|slice| slice.metadata.name.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["gpus-of-one", "gpus-of-two"]);
    let own = ListParams::default().fields("spec.driver=gpu.example.com,spec.nodeName=one");
    slices
        .delete_collection(&DeleteParams::default(), &own)
        .await
        .unwrap();
    assert_eq!(names().await, ["gpus-of-two"]);
}
