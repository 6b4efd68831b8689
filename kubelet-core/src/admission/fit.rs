//! The predicates that the node checks, even if a scheduler placed the pod.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

use super::failure::{InsufficientResource, PredicateFailure};
use super::requests::{
    Amounts, allocatable, held_by, is_backed_by_claim, is_extended_resource, pod_requests,
};
use super::{host_ports, node_affinity, taints};
use crate::PodExt;

/// All reasons why the pod does not fit beside the others; empty if it fits (`generalFilter`).
///
/// # Errors
///
/// The quantity that cannot be parsed.
pub(super) fn general_filter(
    pod: &Pod,
    others: &[Arc<Pod>],
    node: &Node,
) -> Result<Vec<PredicateFailure>, String> {
    let status = node.status.as_ref();
    let allocatable = allocatable(status.and_then(|status| status.allocatable.as_ref()));
    let mut requested = pod_requests(&without_claimed(pod))?;
    // Extended resources that the node does not have belong to the cluster (`removeMissingExtendedResources`).
    requested.retain(|name, _| !is_extended_resource(name) || allocatable.contains_key(name));

    let mut failures = insufficient_resources(&requested, others, &allocatable);
    if !node_affinity::matches(pod, node) {
        failures.push(PredicateFailure::NODE_AFFINITY);
    }
    let wanted = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if wanted.is_some_and(|name| !name.is_empty() && Some(name) != node.metadata.name.as_deref()) {
        failures.push(PredicateFailure::NODE_NAME);
    }
    if !host_ports::are_free(pod, others.iter().map(|other| &**other)) {
        failures.push(PredicateFailure::NODE_PORTS);
    }
    if !pod.is_static() && !taints::are_tolerated(pod, node) {
        failures.push(PredicateFailure::TAINT_TOLERATION);
    }
    Ok(failures)
}

/// The pod without the requests that a claim serves (the other part of `removeMissingExtendedResources`).
fn without_claimed(pod: &Pod) -> Cow<'_, Pod> {
    let status = pod.status.as_ref();
    if status.is_none_or(|status| status.extended_resource_claim_status.is_none()) {
        return Cow::Borrowed(pod);
    }
    let mut without = pod.clone();
    if let Some(spec) = &mut without.spec {
        let init = spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut spec.containers) {
            let requests = container.resources.as_mut();
            if let Some(requests) = requests.and_then(|resources| resources.requests.as_mut()) {
                requests.retain(|resource, _| !is_backed_by_claim(pod, &container.name, resource));
            }
        }
    }
    Cow::Owned(without)
}

/// `noderesources.Fits`: pods, then CPU, memory and storage, then the others by name.
fn insufficient_resources(
    requested: &Amounts,
    others: &[Arc<Pod>],
    allocatable: &Amounts,
) -> Vec<PredicateFailure> {
    let mut failures = Vec::new();
    let capacity = |resource: &str| allocatable.get(resource).copied().unwrap_or_default();
    let pods = i64::try_from(others.len()).unwrap_or(i64::MAX);
    if pods.saturating_add(1) > capacity("pods") {
        failures.push(InsufficientResource {
            resource: "pods".to_owned(),
            requested: 1,
            used: pods,
            capacity: capacity("pods"),
        });
    }
    let held: Vec<Amounts> = others.iter().map(|other| held_by(other)).collect();
    let first = ["cpu", "memory", "ephemeral-storage"];
    let rest = requested.keys().map(String::as_str);
    let rest = rest.filter(|resource| !first.contains(resource) && is_scalar(resource));
    for resource in first.into_iter().chain(rest) {
        let requested = requested.get(resource).copied().unwrap_or_default();
        let used = held.iter().filter_map(|held| held.get(resource));
        let used = used.fold(0_i64, |sum, amount| sum.saturating_add(*amount));
        let capacity = capacity(resource);
        if requested > 0 && requested > capacity.saturating_sub(used) {
            failures.push(InsufficientResource {
                resource: resource.to_owned(),
                requested,
                used,
                capacity,
            });
        }
    }
    failures.into_iter().map(PredicateFailure::Insufficient).collect()
}

/// Resources other than the three that every node has (`schedutil.IsScalarResourceName`).
fn is_scalar(resource: &str) -> bool {
    is_extended_resource(resource)
        || resource.starts_with("hugepages-")
        || resource.starts_with("attachable-volumes-")
        || resource.contains("kubernetes.io/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Arc<Pod> {
        let mut spec = spec;
        spec["containers"] = spec.get("containers").cloned().unwrap_or_else(|| json!([]));
        Arc::new(serde_json::from_value(json!({"spec": spec})).unwrap())
    }

    fn asking(requests: Value) -> Arc<Pod> {
        pod(json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
    }

    fn node() -> Node {
        let allocatable = json!({
            "cpu": "10m", "memory": "20", "pods": "3", "ephemeral-storage": "5",
            "example.com/gpu": "2", "hugepages-2Mi": "4Mi",
        });
        let node = json!({"metadata": {"name": "machine1"}, "status": {"allocatable": allocatable}});
        serde_json::from_value(node).unwrap()
    }

    fn failures(pod: &Pod, others: &[Arc<Pod>]) -> Vec<String> {
        let failures = general_filter(pod, others, &node()).unwrap();
        failures
            .iter()
            .map(|failure| failure.rejection().reason)
            .collect()
    }

    #[test]
    fn what_is_free_is_what_the_others_leave() {
        let busy = [asking(
            json!({"cpu": "5m", "memory": "19", "example.com/gpu": "1"}),
        )];
        let cases: [(Value, &[&str]); 11] = [
            (json!({}), &[]),
            (json!({"cpu": "5m", "memory": "1"}), &[]),
            (json!({"cpu": "8m", "memory": "10"}), &["OutOfcpu", "OutOfmemory"]),
            (json!({"cpu": "6m"}), &["OutOfcpu"]),
            (json!({"memory": "2"}), &["OutOfmemory"]),
            (json!({"ephemeral-storage": "6"}), &["OutOfephemeral-storage"]),
            (json!({"example.com/gpu": "1"}), &[]),
            (json!({"example.com/gpu": "2"}), &["OutOfexample.com/gpu"]),
            (json!({"hugepages-2Mi": "6Mi"}), &["OutOfhugepages-2Mi"]),
            // The node does not know it: it is for the cluster to give.
            (json!({"example.com/cluster-wide": "1"}), &[]),
            (json!({"example.com/gpu": "0"}), &[]),
        ];
        for (requests, expected) in cases {
            assert_eq!(failures(&asking(requests.clone()), &busy), expected, "{requests}");
        }
    }

    /// `TestRemoveMissingExtendedResources`
    #[test]
    fn what_a_claim_serves_is_not_counted() {
        const BY_CLASS: &str = "deviceclass.resource.kubernetes.io/gpu";
        let asking = |claimed: &str| {
            let resources = json!({"requests": {"example.com/gpu": "3", BY_CLASS: "1"}});
            let mappings: Vec<Value> = ["example.com/gpu", BY_CLASS]
                .iter()
                .map(|name| json!({"containerName": claimed, "requestName": "r", "resourceName": name}))
                .collect();
            let pod = json!({
                "spec": {"containers": [{"name": "c", "resources": resources}]},
                "status": {"extendedResourceClaimStatus": {"requestMappings": mappings, "resourceClaimName": "claim"}},
            });
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        assert!(failures(&asking("c"), &[]).is_empty());
        let of_another = failures(&asking("other"), &[]);
        assert_eq!(
            of_another,
            [format!("OutOf{BY_CLASS}"), "OutOfexample.com/gpu".to_owned()]
        );
    }

    #[test]
    fn there_is_room_for_so_many_pods_and_the_message_tells_the_figures() {
        let others: Vec<_> = (0..3).map(|_| pod(json!({}))).collect();
        assert!(failures(&pod(json!({})), &others[..2]).is_empty());
        let failure = &general_filter(&pod(json!({})), &others, &node()).unwrap()[0];
        assert_eq!(failure.rejection().reason, "OutOfpods");
        assert_eq!(
            failure.to_string(),
            "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"
        );
        let PredicateFailure::Insufficient(insufficient) = failure else {
            unreachable!()
        };
        assert_eq!(insufficient.missing(), 1);
    }

    #[test]
    fn every_predicate_that_fails_is_told_in_order() {
        let ports = json!([{"name": "c", "ports": [{"containerPort": 1, "hostPort": 123}],
            "resources": {"requests": {"cpu": "11m"}}}]);
        let all = json!({"containers": ports, "nodeName": "machine2", "nodeSelector": {"a": "b"}});
        let other = pod(json!({"containers": ports}));
        let expected = ["OutOfcpu", "NodeAffinity", "NodeName", "NodePorts"];
        assert_eq!(failures(&pod(all), &[other]), expected);
        let named = pod(json!({"nodeName": "machine1"}));
        assert!(failures(&named, &[]).is_empty());
    }

    #[test]
    fn taints_do_not_matter_to_static_pods() {
        let mut node = node();
        let taints = json!({"taints": [{"key": "k", "effect": "NoExecute"}]});
        node.spec = Some(serde_json::from_value(taints).unwrap());
        let mut fixed = Pod::clone(&pod(json!({})));
        assert_eq!(
            general_filter(&fixed, &[], &node).unwrap(),
            [PredicateFailure::TAINT_TOLERATION]
        );
        fixed.metadata.annotations = Some([("kubernetes.io/config.source".into(), "file".into())].into());
        assert_eq!(general_filter(&fixed, &[], &node).unwrap(), []);
    }
}
