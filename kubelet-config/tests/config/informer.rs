//! What an agent keeps at hand of an API server, through its good and bad times.
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::node::v1::RuntimeClass;
use kubelet_config::Informer;
use kubelet_core::{Jitter, RuntimeClasses, Services};
use kubelet_testing::api_server::{ApiServer, Memory, User};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::api_source::server;

/// Far longer than any pause.
const GUARD: Duration = Duration::from_secs(7 * 24 * 60 * 60);

fn service(namespace: &str, name: &str, ip: &str) -> Service {
    let service = json!({"metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
        "spec": {"clusterIP": ip, "ports": [{"name": "http", "port": 80}], "selector": {"app": name}}});
    serde_json::from_value(service).unwrap()
}

/// Waits until it is so.
async fn until(what: &str, reached: impl Fn() -> bool) {
    let waiting = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(GUARD, waiting)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

fn names(services: &dyn Services, namespace: &str) -> Vec<String> {
    let of_namespace = services.in_namespace(namespace).into_iter();
    of_namespace
        .map(|service| service.metadata.name.clone().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn services_are_watched_as_the_kubelet_watches_them() {
    let server = ApiServer::builder().record_reads().build();
    for (namespace, name, ip) in [
        ("default", "b", "10.0.0.21"),
        ("default", "a", "10.0.0.20"),
        ("default", "headless", "None"),
        ("kube-public", "elsewhere", "10.0.0.22"),
    ] {
        server.create(&service(namespace, name, ip)).unwrap();
    }
    let informer =
        Informer::services(server.client_as(User::node("node-1"))).with_jitter(Jitter::from_seed(1));
    let (handle, shutdown) = (informer.handle(), CancellationToken::new());
    assert!(!handle.has_synced());
    let running = tokio::spawn(informer.run(shutdown.clone()));
    timeout(GUARD, handle.synced()).await.unwrap();
    assert_eq!(
        names(&handle, "default"),
        ["a", "b"],
        "and not what nobody is told of"
    );
    assert_eq!(names(&handle, "kube-public"), ["elsewhere"]);
    assert_eq!(names(&handle, "def"), [""; 0]);
    let a = handle.service("default", "a").unwrap();
    let spec = a.spec.as_ref().unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("10.0.0.20"));
    assert_eq!(spec.ports.as_ref().unwrap()[0].name.as_deref(), Some("http"));
    assert_eq!(
        (&spec.selector, &a.metadata.labels),
        (&None, &None),
        "what nobody reads is not kept"
    );
    let asked: Vec<_> = server
        .calls()
        .all()
        .into_iter()
        .filter(|call| call.resource == "services")
        .collect();
    let asked = asked.iter().filter(|call| call.user == User::node("node-1").name);
    let asked: Vec<_> = asked
        .map(|call| format!("{} {}", call.verb, call.field_selector))
        .collect();
    assert_eq!(asked, ["watch spec.clusterIP!=None"]);

    // What changes is seen.
    server.create(&service("default", "c", "10.0.0.23")).unwrap();
    server.delete::<Service>("default", "a").unwrap();
    until("they are seen", || names(&handle, "default") == ["b", "c"]).await;

    // Away, what was seen last counts; back, all is made up for.
    server.stop();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(handle.has_synced());
    assert_eq!(names(&handle, "default"), ["b", "c"]);
    server.restart(Memory::Lost);
    server.delete::<Service>("default", "b").unwrap();
    until("they are seen", || names(&handle, "default") == ["c"]).await;

    shutdown.cancel();
    running.await.unwrap();
    assert_eq!(names(&handle, "default"), ["c"]);
}

/// A program in Go writes a condition without a time as `null`, which the API server keeps.
#[tokio::test(start_paused = true)]
async fn a_service_is_read_whatever_others_write_to_its_status() {
    let (client, mut server) = server();
    let informer = Informer::services(client);
    let (handle, shutdown) = (informer.handle(), CancellationToken::new());
    let running = tokio::spawn(informer.run(shutdown.clone()));
    let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": null, "reason": "E2E", "message": ""});
    let service = json!({"kind": "Service", "apiVersion": "v1",
        "metadata": {"namespace": "default", "name": "a", "uid": "uid-a", "resourceVersion": "7"},
        "spec": {"clusterIP": "10.0.0.20", "ports": [{"port": 80}]}, "status": {"conditions": [condition]}});
    let _watch = server.asked().await.watch_list("10", &[service]).await;
    timeout(GUARD, handle.synced()).await.unwrap();
    assert_eq!(names(&handle, "default"), ["a"]);
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn runtime_classes_are_watched_as_the_kubelet_watches_them() {
    let server = ApiServer::builder().record_reads().build();
    let class = |name: &str, handler: &str| -> RuntimeClass {
        serde_json::from_value(json!({"metadata": {"name": name}, "handler": handler})).unwrap()
    };
    server.create(&class("sandboxed", "kata-containers")).unwrap();
    let informer = Informer::runtime_classes(server.client_as(User::node("node-1")));
    let (handle, shutdown) = (informer.handle(), CancellationToken::new());
    let running = tokio::spawn(informer.run(shutdown.clone()));
    timeout(GUARD, handle.synced()).await.unwrap();
    assert_eq!(handle.handler("sandboxed").as_deref(), Some("kata-containers"));
    assert_eq!(handle.handler("phantom"), None);
    assert_eq!(server.calls().count("watch runtimeclasses"), 1);
    server.create(&class("phantom", "runsc")).unwrap();
    until("it is seen", || {
        handle.handler("phantom").as_deref() == Some("runsc")
    })
    .await;
    server.delete::<RuntimeClass>("", "phantom").unwrap();
    until("it is gone", || handle.handler("phantom").is_none()).await;
    shutdown.cancel();
    running.await.unwrap();
}
