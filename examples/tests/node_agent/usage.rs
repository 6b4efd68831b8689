//! The usage of the node and of its pods: `/stats/summary`, the metrics, and `kubectl top`.

use std::path::Path;

use kube_client::Api;
use kube_client::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;

use super::cluster::{Cluster, NODE};
use super::pods::IMAGE;
use crate::standalone::until;

/// The image of sandboxes on the containerd of a test.
const PAUSE: &str = "localhost/kubelet-testing/pause:1";

/// Begins to measure, because a rate needs two readings some time apart.
pub(super) async fn begin(cluster: &Cluster) {
    metrics(cluster, "NodeMetrics", "nodes").list(&ListParams::default()).await.unwrap();
}

/// Checks the usage of a pod with the container `main`. With `cgroups`, its containers lie in the cgroup of the pod.
pub(super) async fn check(cluster: &Cluster, kubectl: &Path, pod: &str, cgroups: bool) {
    let ask = async |path: &str| {
        cluster.kubectl(kubectl, &["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/{path}")]).await
    };
    let is_used = |value: &Value| value.as_u64().is_some_and(|value| value > 0);
    for path in ["stats/summary", "stats/summary?only_cpu_and_memory=true"] {
        let summary: Value = serde_json::from_str(&ask(path).await).unwrap();
        let node = &summary["node"];
        assert_eq!(node["nodeName"], NODE);
        let pods = summary["pods"].as_array().unwrap();
        let usage = pods.iter().find(|found| found["podRef"]["name"] == pod).expect("the pod has usage");
        let container = &usage["containers"][0];
        assert_eq!((&container["name"], &usage["podRef"]["namespace"]), (&"main".into(), &"default".into()));
        for used in [node, container] {
            assert!(is_used(&used["cpu"]["usageCoreNanoSeconds"]), "{path}: {used}");
            assert!(is_used(&used["memory"]["workingSetBytes"]), "{path}: {used}");
        }
        if path == "stats/summary" {
            assert!(is_used(&node["fs"]["capacityBytes"]), "{node}");
        }
    }

    let of_container = format!("{{container=\"main\",namespace=\"default\",pod=\"{pod}\"}}");
    let resource = ask("metrics/resource").await;
    for series in [
        format!("container_cpu_usage_seconds_total{of_container}"),
        format!("container_memory_working_set_bytes{of_container}"),
        format!("container_start_time_seconds{of_container}"),
        "node_cpu_usage_seconds_total ".to_owned(),
        "resource_scrape_error 0".to_owned(),
    ] {
        assert!(resource.contains(&series), "{series} is not in {resource}");
    }

    // A reading may be some seconds older than the pod.
    let of_image = format!(",image=\"{IMAGE}\"");
    let shown = async || {
        let text = ask("metrics/cadvisor").await;
        (!cgroups || text.contains(&of_image)).then_some(text)
    };
    let cadvisor = until("the metrics of cAdvisor show the container", shown).await;
    let root = "container_memory_working_set_bytes{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"}";
    for series in ["machine_cpu_cores{", "container_scrape_error 0", root] {
        assert!(cadvisor.contains(series), "{series} is not in {cadvisor}");
    }
    if cgroups {
        let labels = format!(",namespace=\"default\",pod=\"{pod}\"}}");
        let of_sandbox = format!(",image=\"{}\",interface=\"eth0\"", PAUSE);
        assert!(cadvisor.contains(&of_sandbox), "{of_sandbox} is not in {cadvisor}");
        for (name, container) in [
            ("container_memory_rss", "main"),
            ("container_processes", "main"),
            ("container_network_receive_bytes_total", ""),
        ] {
            let begin = format!("{name}{{container=\"{container}\",id=\"");
            let mut found = cadvisor.split(' ').filter(|part| part.starts_with(&begin));
            assert!(found.any(|part| part.ends_with(&labels)), "{name} of the pod is not in {cadvisor}");
        }
    }

    let measured = async || {
        let nodes = metrics(cluster, "NodeMetrics", "nodes").list(&ListParams::default()).await.unwrap();
        let pods = metrics(cluster, "PodMetrics", "pods").list(&ListParams::default()).await.unwrap();
        let has_pod = pods.items.iter().any(|found| found.metadata.name.as_deref() == Some(pod));
        (has_pod && !nodes.items.is_empty()).then_some(())
    };
    until("the usage is measured twice", measured).await;
    let top = cluster.kubectl(kubectl, &["top", "node", "--no-headers"]).await;
    let columns: Vec<&str> = top.split(' ').collect();
    let [name, cpu, cpu_part, memory, memory_part] = columns[..] else { panic!("{top}") };
    assert_eq!(name, NODE);
    assert!(cpu.ends_with('m') && cpu_part.ends_with('%'), "{top}");
    assert!(memory.ends_with("Mi") && memory_part.ends_with('%'), "{top}");
    let top = cluster.kubectl(kubectl, &["top", "pod", pod, "--containers", "--no-headers"]).await;
    assert!(top.starts_with(&format!("{pod} main ")) && top.ends_with("Mi"), "{top}");
}

/// The objects of metrics-server.
fn metrics(cluster: &Cluster, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1beta1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::all_with(cluster.server.client(), &resource)
}
