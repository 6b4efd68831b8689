//! Requests and limits, of containers and of the pod.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Field, Problems, names};
use crate::manifest::canonical::amount as parse;
use crate::manifest::defaults::container_requests;

type Amounts = BTreeMap<String, Quantity>;

/// The resources of a container.
pub(super) fn validate(resources: &ResourceRequirements, field: &Field, problems: &mut Problems) {
    for (list, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for resource in amounts.iter().flat_map(BTreeMap::keys) {
            if let Err(why) = container_resource(resource) {
                problems.invalid(&field.child(list).key(resource), resource, why);
            }
        }
    }
    validate_amounts(resources, field, problems);
}

/// The resources of a pod, by themselves and beside those of its containers.
pub(super) fn validate_pod(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    let overhead = spec.overhead.clone().filter(|overhead| !overhead.is_empty());
    if overhead.is_some() {
        let overhead = ResourceRequirements {
            limits: overhead,
            ..ResourceRequirements::default()
        };
        validate(&overhead, &field.child("overhead"), problems);
    }
    let Some(resources) = &spec.resources else { return };
    let at = field.child("resources");
    if resources.claims.is_some() {
        problems.forbidden(
            &at.child("claims"),
            "claims may not be set for Resources at pod-level",
        );
    }
    for (list, amounts) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        for resource in amounts.iter().flat_map(BTreeMap::keys) {
            if !is_huge_pages(resource) {
                let field = at.child(list).key(resource);
                problems.unless_one_of(&field, resource, &["cpu", "hugepages-", "memory"]);
            }
        }
    }
    validate_amounts(resources, &at, problems);
    let none = Amounts::new();
    let requests = resources.requests.as_ref().unwrap_or(&none);
    for (resource, together) in container_requests(spec) {
        if let Some(request) = requests
            .get(&resource)
            .filter(|request| exceeds(&together, request))
        {
            let why = format!(
                "must be greater than or equal to aggregate container requests of {}",
                together.0
            );
            problems.invalid(&at.child("requests").key(&resource), &request.0, &why);
        }
    }
    let limits = resources.limits.as_ref().unwrap_or(&none);
    for (index, container) in spec.containers.iter().enumerate() {
        let own = container
            .resources
            .as_ref()
            .and_then(|resources| resources.limits.as_ref());
        for (resource, amount) in own.into_iter().flatten() {
            if let Some(limit) = limits.get(resource).filter(|limit| exceeds(amount, limit)) {
                let field = at.child("containers").index(index).key(resource).child("limits");
                let why = format!("must be less than or equal to pod limits of {}", limit.0);
                problems.invalid(&field, &amount.0, &why);
            }
        }
    }
}

/// How a container's resources may change while it runs.
pub(super) fn validate_resize_policy(
    container: &Container,
    spec: &PodSpec,
    field: &Field,
    problems: &mut Problems,
) {
    let mut seen = HashSet::new();
    for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
        if !seen.insert(&policy.resource_name) {
            problems.duplicate(&field.index(index), &policy.resource_name);
        }
        problems.unless_one_of(field, &policy.resource_name, &["cpu", "memory"]);
        problems.unless_one_of(
            field,
            &policy.restart_policy,
            &["NotRequired", "RestartContainer"],
        );
        if spec.restart_policy.as_deref() == Some("Never") && policy.restart_policy != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            problems.invalid(field, &policy.restart_policy, why);
        }
    }
}

fn validate_amounts(resources: &ResourceRequirements, field: &Field, problems: &mut Problems) {
    let none = Amounts::new();
    let limits = resources.limits.as_ref().unwrap_or(&none);
    let requests = resources.requests.as_ref().unwrap_or(&none);
    for (list, amounts) in [("limits", limits), ("requests", requests)] {
        for (resource, amount) in amounts {
            validate_amount(resource, amount, &field.child(list).key(resource), problems);
        }
    }
    for (resource, request) in requests {
        let at = field.child("requests");
        match limits.get(resource) {
            Some(limit) if exceeds(request, limit) => {
                let why = format!("must be less than or equal to {resource} limit of {}", limit.0);
                problems.invalid(&at, &request.0, &why);
            }
            Some(limit) if !may_overcommit(resource) && exceeds(limit, request) => {
                let why = format!("must be equal to {resource} limit of {}", limit.0);
                problems.invalid(&at, &request.0, &why);
            }
            None if !may_overcommit(resource) => {
                let why = "Limit must be set for non overcommitable resources";
                problems.required(&field.child("limits"), why);
            }
            _ => {}
        }
    }
    let mut named = limits.keys().chain(requests.keys());
    let huge = named.clone().any(|resource| is_huge_pages(resource));
    if huge && !named.any(|resource| matches!(resource.as_str(), "cpu" | "memory")) {
        problems.forbidden(field, "HugePages require cpu or memory");
    }
}

fn validate_amount(resource: &str, amount: &Quantity, field: &Field, problems: &mut Problems) {
    let Some(quantity) = parse(&amount.0) else {
        problems.invalid(field, &amount.0, "must be a quantity");
        return;
    };
    if quantity.amount.is_negative() {
        problems.invalid(field, &amount.0, "must be greater than or equal to 0");
    }
    if resource.contains('/') && !quantity.amount.is_whole() {
        problems.invalid(field, &amount.0, "must be an integer");
    }
    if let Some(page) = resource.strip_prefix("hugepages-") {
        match parse(page) {
            Some(page) if quantity.amount.is_multiple_of(page.amount) => {}
            _ => problems.invalid(
                field,
                &amount.0,
                &format!("is not positive integer multiple of {resource}"),
            ),
        }
    }
}

fn container_resource(resource: &str) -> Result<(), &'static str> {
    names::qualified_name(resource)?;
    match resource.split_once('/') {
        None if matches!(resource, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(resource) => {
            Ok(())
        }
        None => Err("must be a standard resource for containers"),
        Some((domain, _)) if domain.contains("kubernetes.io") => Ok(()),
        Some(_) if resource.starts_with("requests.") => Err("doesn't follow extended resource name standard"),
        Some(_) => Ok(()),
    }
}

fn is_huge_pages(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

fn may_overcommit(resource: &str) -> bool {
    (!resource.contains('/') || resource.contains("kubernetes.io/")) && !is_huge_pages(resource)
}

fn exceeds(amount: &Quantity, bound: &Quantity) -> bool {
    match (parse(&amount.0), parse(&bound.0)) {
        (Some(amount), Some(bound)) => amount.amount > bound.amount,
        _ => false,
    }
}
