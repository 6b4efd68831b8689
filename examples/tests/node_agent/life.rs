//! A node joins, and pods start and are deleted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kubelet_core::PodExt;
use kubelet_testing::api_server::find_kubectl;
use serde_json::json;

use super::cluster::{Cluster, NODE};
use super::pods::{SERVER, pod};
use crate::standalone::until;

#[tokio::test]
async fn a_node_joins_and_pods_live_and_go() {
    let Some(kubectl) = find_kubectl().unwrap() else { return };
    let cluster = Cluster::on_processes().await;
    let service: Service =
        serde_json::from_value(json!({"metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "https", "port": 443}]}}))
        .unwrap();
    cluster.server.create(&service).unwrap();
    let (well, told) = cluster.preflight().await;
    assert!(!well && told.contains(NODE), "{told}");
    let started = Instant::now();
    let mut agent = cluster.start();
    let node = cluster.node_is_ready().await;
    println!("the node is Ready {:?} after its agent's start", started.elapsed());
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref()).unwrap();
    assert!(info.kubelet_version.starts_with("v1.36."), "{info:?}");
    assert!(info.container_runtime_version.starts_with("process://"), "{info:?}");
    let features = node.status.as_ref().and_then(|status| status.declared_features.as_deref()).unwrap();
    assert!(features.iter().any(|it| it == "RestartAllContainersOnContainerExits"), "{features:?}");
    let managers = node.metadata.managed_fields.iter().flatten().map(|fields| fields.manager.as_deref());
    assert!(managers.clone().count() > 0 && managers.into_iter().all(|it| it == Some("kubelet")), "{node:?}");
    let lease = async || {
        let lease: Option<Lease> = cluster.server.get("kube-node-lease", NODE).unwrap();
        lease?.spec?.holder_identity
    };
    assert_eq!(until("the lease", lease).await, NODE);
    let listed = cluster.kubectl(&kubectl, &["get", "nodes"]).await;
    assert!(listed.contains(&format!("{NODE} Ready <none>")), "{listed}");
    let healthy = async || cluster.healthz("/healthz").await.filter(|(status, _)| *status == 200);
    assert_eq!(until("it is healthy", healthy).await.1, "ok");
    let (_, verbose) = cluster.healthz("/healthz?verbose").await.unwrap();
    assert_eq!(
        verbose,
        "[+]ping ok\n[+]syncloop ok\n[+]pleg ok\n[+]device-plugin ok\nhealthz check passed\n"
    );
    assert_eq!(cluster.healthz("/healthz/none").await.unwrap().0, 404);
    cluster.event(NODE, "Starting", "Starting kubelet.").await;
    let (well, told) = cluster.preflight().await;
    assert!(well && told.contains("no problem found"), "{told}");

    // An ordinary pod with its token and the supported volumes.
    let config: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "config", "namespace": "default"},
        "data": {"word": "from-the-config-map"}}))
        .unwrap();
    cluster.server.create(&config).unwrap();
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "secret", "namespace": "default"},
        "data": {"word": "ZnJvbS10aGUtc2VjcmV0"}}))
        .unwrap();
    cluster.server.create(&secret).unwrap();
    let env = json!([
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "config", "key": "word"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "word"}}},
    ]);
    let volumes = json!([{"name": "scratch", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/", "type": "Directory"}}]);
    let mounts =
        json!([{"name": "scratch", "mountPath": "/scratch"}, {"name": "host", "mountPath": "/host"}]);
    let script = format!("echo $A $B $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT_HTTPS; {SERVER}");
    let spec =
        json!({"env": env, "volumes": volumes, "volumeMounts": mounts, "securityContext": {"fsGroup": 4242}});
    cluster.create(&pod("web", &script, spec));
    let web = cluster.ready("web").await;
    for reason in ["Pulled", "Created", "Started"] {
        cluster.event("web", reason, "").await;
    }
    let volume = web.spec.as_ref().unwrap().volumes.iter().flatten().find(|it| it.projected.is_some());
    let volume = &volume.expect("the API server gives each pod its token").name;
    let file = |name: &str| cluster.volume_file(web.uid_str(), "kubernetes.io~projected", volume, name);
    assert_eq!(fs::read_to_string(file("namespace")).unwrap(), "default");
    assert_eq!(fs::read_to_string(file("token")).unwrap().split('.').count(), 3);
    assert!(file("ca.crt").exists() && file("..data").is_symlink());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    println!(
        "its files are in memory: {}",
        mounts.contains(&format!("/volumes/kubernetes.io~projected/{volume} "))
    );
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(file("token")), 0o640, "it is the group's of the pod");
    assert_eq!(mode(cluster.volume_file(web.uid_str(), "kubernetes.io~empty-dir", "scratch", "")), 0o2777);
    let logs = cluster.path("logs").join(format!("default_web_{}", web.uid_str())).join("main/0.log");
    let logged = async || fs::read_to_string(&logs).ok().filter(|log| log.contains("up"));
    let log = until("the log of web", logged).await;
    assert!(log.contains("from-the-config-map from-the-secret 10.0.0.1:443"), "{log}");
    let listed = cluster.kubectl(&kubectl, &["get", "pods"]).await;
    assert!(listed.contains("web 1/1 Running 0"), "{listed}");
    let described = cluster.kubectl(&kubectl, &["describe", "pod", "web"]).await;
    for words in ["Status: Running", "Normal Pulled", "Normal Created", "Normal Started", "kubelet"] {
        assert!(described.contains(words), "{words}: {described}");
    }

    // A pod with a volume that this node does not support waits, and an event has the reason.
    let volumes = json!([{"name": "c", "flexVolume": {"driver": "example.com/none"}}]);
    let spec = json!({"volumes": volumes, "volumeMounts": [{"name": "c", "mountPath": "/c"}]});
    let waits = cluster.create(&pod("waits", SERVER, spec));
    let why = "Unable to attach or mount volumes: unmounted volumes=[c";
    cluster.event("waits", "FailedMount", why).await;
    cluster.server.delete::<k8s_openapi::api::core::v1::Pod>("default", "waits").unwrap();
    cluster.gone("waits", waits.uid_str()).await;

    // A deleted pod gets its grace period, and everything it had is released.
    cluster.kubectl(&kubectl, &["delete", "pod", "web", "--wait=false"]).await;
    cluster.gone("web", web.uid_str()).await;
    cluster.event("web", "Killing", "Stopping container main").await;
    let pod_dir = cluster.path("root").join("pods").join(web.uid_str());
    let removed = async || (!pod_dir.exists()).then_some(());
    until("the pod's folder is removed", removed).await;

    agent.signal(rustix::process::Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}
