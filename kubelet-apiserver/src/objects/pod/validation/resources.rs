//! Requests and limits, of containers and of the pod.

use std::collections::HashSet;

use kubelet_core::quantity::WrittenAmount;
use serde_json::{Value, json};

use super::super::super::names;
use super::super::super::problems::{Field, Problems};
use super::super::super::quantity;
use super::super::super::value::Fields;

/// `ValidateContainerResourceRequirements`.
pub(super) fn validate(resources: &Value, field: &Field, problems: &mut Problems) {
    validate_requirements(resources, container_resource, field, problems);
}

/// `validateOverhead`.
pub(in super::super::super) fn validate_overhead(overhead: &Value, field: &Field, problems: &mut Problems) {
    validate(&json!({"limits": overhead}), field, problems);
}

/// The resources of a pod: their own validity, and their relation to the containers' resources.
pub(super) fn validate_pod(spec: &Value, field: &Field, problems: &mut Problems) {
    let Some(resources) = spec.field("resources") else {
        return;
    };
    let at = field.child("resources");
    if resources.has("claims") {
        let why = "claims may not be set for Resources at pod-level";
        problems.forbidden(&at.child("claims"), why);
    }
    validate_requirements(resources, pod_resource, &at, problems);
    for (resource, together) in quantity::of_containers(spec, "requests") {
        let requests = &resources["requests"];
        if let Some(request) = quantity::of(&requests[&resource])
            && together.amount > request.amount
        {
            let why = format!("must be greater than or equal to aggregate container requests of {together}");
            problems.invalid(
                &at.child("requests").key(&resource),
                requests[&resource].clone(),
                &why,
            );
        }
    }
    for (index, container) in spec.list("containers").iter().enumerate() {
        for (resource, amount) in quantity::amounts(&container["resources"], "limits") {
            if let Some(limit) = quantity::of(&resources["limits"][&resource])
                && amount.amount > limit.amount
            {
                let field = at.child("containers").index(index).key(&resource).child("limits");
                let why = format!("must be less than or equal to pod limits of {limit}");
                problems.invalid(&field, amount.to_string(), &why);
            }
        }
    }
}

/// `validateResizePolicy`.
pub(super) fn validate_resize_policy(
    container: &Value,
    spec: &Value,
    field: &Field,
    problems: &mut Problems,
) {
    let mut seen = HashSet::new();
    for (index, policy) in container.list("resizePolicy").iter().enumerate() {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if !seen.insert(resource) {
            problems.duplicate(&field.index(index), resource);
        }
        match resource {
            "" => problems.required(field, ""),
            _ => problems.unless_one_of(field, resource, &["cpu", "memory"]),
        }
        match restart {
            "" => problems.required(field, ""),
            _ => problems.unless_one_of(field, restart, &["NotRequired", "RestartContainer"]),
        }
        if spec.text("restartPolicy") == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            problems.invalid(field, restart, why);
        }
    }
}

/// `validateResourceRequirements`.
fn validate_requirements(
    resources: &Value,
    check_name: fn(&str, &Field, &mut Problems),
    field: &Field,
    problems: &mut Problems,
) {
    let (limits, requests) = (&resources["limits"], &resources["requests"]);
    for (resource, amount) in resources.entries("limits") {
        let field = field.child("limits").key(resource);
        check_name(resource, &field, problems);
        validate_amount(resource, amount, &field, problems);
    }
    for (resource, amount) in resources.entries("requests") {
        let at = field.child("requests");
        check_name(resource, &at.key(resource), problems);
        validate_amount(resource, amount, &at.key(resource), problems);
        let Some(request) = quantity::of(amount) else {
            continue;
        };
        match quantity::of(&limits[resource]) {
            Some(limit) if !may_overcommit(resource) && limit.amount != request.amount => {
                let why = format!("must be equal to {resource} limit of {limit}");
                problems.invalid(&at, amount.clone(), &why);
            }
            Some(limit) if request.amount > limit.amount => {
                let why = format!("must be less than or equal to {resource} limit of {limit}");
                problems.invalid(&at, amount.clone(), &why);
            }
            None if !may_overcommit(resource) => {
                let why = "Limit must be set for non overcommitable resources";
                problems.required(&field.child("limits"), why);
            }
            _ => {}
        }
    }
    let named = |wanted: fn(&str) -> bool| {
        let mut names = [limits, requests]
            .into_iter()
            .flat_map(Value::as_object)
            .flatten()
            .map(|(name, _)| name);
        names.any(|name| wanted(name))
    };
    if named(is_huge_pages) && !named(|name| matches!(name, "cpu" | "memory")) {
        problems.forbidden(field, "HugePages require cpu or memory");
    }
}

fn validate_amount(resource: &str, amount: &Value, field: &Field, problems: &mut Problems) {
    let Some(quantity) = quantity::of(amount) else {
        return;
    };
    if quantity.amount.is_negative() {
        problems.invalid(field, amount.clone(), "must be greater than or equal to 0");
    }
    if is_extended(resource) && !quantity.amount.is_whole() {
        problems.invalid(field, amount.clone(), "must be an integer");
    }
    if let Some(page) = resource.strip_prefix("hugepages-") {
        match page.parse::<WrittenAmount>() {
            Ok(page) if quantity.amount.is_multiple_of(page.amount) => {}
            _ => {
                let why = format!("{quantity} is not positive integer multiple of {resource}");
                problems.invalid(field, amount.clone(), &why);
            }
        }
    }
}

/// `validateContainerResourceName`.
fn container_resource(resource: &str, field: &Field, problems: &mut Problems) {
    let found = names::qualified_name(resource);
    if !found.is_empty() {
        problems.unless_formed(field, resource, names::qualified_name);
    }
    if !resource.contains('/') {
        if !matches!(resource, "cpu" | "memory" | "ephemeral-storage") && !is_huge_pages(resource) {
            if found.is_empty() && !is_standard(resource) {
                let why = "must be a standard resource type or fully qualified";
                problems.invalid(field, resource, why);
            }
            problems.invalid(field, resource, "must be a standard resource for containers");
        }
    } else if !resource.contains("kubernetes.io/") && !is_extended(resource) {
        problems.invalid(field, resource, "doesn't follow extended resource name standard");
    }
}

fn pod_resource(resource: &str, field: &Field, problems: &mut Problems) {
    if !matches!(resource, "cpu" | "memory") && !is_huge_pages(resource) {
        problems.not_supported(field, resource, &["cpu", "hugepages-", "memory"]);
    }
}

/// `IsStandardResourceName`.
fn is_standard(resource: &str) -> bool {
    is_huge_pages(resource)
        || matches!(
            resource,
            "cpu"
                | "memory"
                | "ephemeral-storage"
                | "requests.cpu"
                | "requests.memory"
                | "requests.storage"
                | "requests.ephemeral-storage"
                | "limits.cpu"
                | "limits.memory"
                | "limits.ephemeral-storage"
                | "pods"
                | "resourcequotas"
                | "services"
                | "replicationcontrollers"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "storage"
                | "services.nodeports"
                | "services.loadbalancers"
        )
}

fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/") && !resource.starts_with("requests.")
}

fn is_huge_pages(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

fn may_overcommit(resource: &str) -> bool {
    (!resource.contains('/') || resource.contains("kubernetes.io/")) && !is_huge_pages(resource)
}
