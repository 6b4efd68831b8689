//! Which claims a pod has, and whether it may use them. Answers to `k8s.io/dynamic-resource-allocation/resourceclaim`.

use k8s_openapi::api::core::v1::{
    Container, Pod, PodExtendedResourceClaimStatus, PodResourceClaim, ResourceRequirements,
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kubelet_core::quantity::Amount;

use super::DraGates;
use crate::{Error, Result};

/// The name of the `ResourceClaim` of an entry in `spec.resourceClaims`.
pub(super) struct ClaimName<'a> {
    pub(super) name: &'a str,
    /// The claim was made from a template: only the pod that owns it may use it.
    pub(super) must_check_owner: bool,
}

/// `None` if the entry needs no claim (`resourceclaim.Name`).
pub(super) fn claim_name<'a>(pod: &'a Pod, entry: &'a PodResourceClaim) -> Result<Option<ClaimName<'a>>> {
    if let Some(name) = &entry.resource_claim_name {
        return Ok(Some(ClaimName {
            name,
            must_check_owner: false,
        }));
    }
    let (namespace, pod_name) = of(pod);
    if entry.resource_claim_template_name.is_none() {
        return Err(Error::Claims(format!(
            "pod \"{namespace}/{pod_name}\", spec.resourceClaim \"{}\": none of the supported fields are set",
            entry.name
        )));
    }
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.resource_claim_statuses.as_ref());
    let status = statuses
        .into_iter()
        .flatten()
        .find(|status| status.name == entry.name);
    match status {
        Some(status) => Ok(status.resource_claim_name.as_deref().map(|name| ClaimName {
            name,
            must_check_owner: true,
        })),
        None => Err(Error::Claims(format!(
            "pod \"{namespace}/{pod_name}\": ResourceClaim not created yet"
        ))),
    }
}

/// The claims of a pod, also the one for its extended resources.
pub(super) fn claims_of(pod: &Pod, gates: DraGates) -> Result<Vec<ClaimName<'_>>> {
    let mut names = Vec::new();
    for entry in entries(pod) {
        names.extend(claim_name(pod, entry)?);
    }
    if let Some(extended) = extended_claim(pod, gates) {
        names.push(ClaimName {
            name: &extended.resource_claim_name,
            must_check_owner: false,
        });
    }
    Ok(names)
}

/// The names of the claims that a container uses, each with the requests that it names; an empty request is the whole claim.
pub(super) fn requests_of<'a>(
    pod: &'a Pod,
    container: &'a Container,
    gates: DraGates,
) -> Result<Vec<(&'a str, Vec<&'a str>)>> {
    let mut requests = Vec::new();
    let resources = container.resources.as_ref();
    let claims = resources
        .and_then(|resources| resources.claims.as_deref())
        .unwrap_or_default();
    for entry in entries(pod) {
        let of_entry = claims.iter().filter(|claim| claim.name == entry.name);
        let of_entry: Vec<&str> = of_entry
            .map(|claim| claim.request.as_deref().unwrap_or_default())
            .collect();
        if of_entry.is_empty() {
            continue;
        }
        if let Some(claim) = claim_name(pod, entry)? {
            requests.push((claim.name, of_entry));
        }
    }
    if let Some(extended) = extended_claim(pod, gates) {
        let of_container = extended.request_mappings.iter().filter(|mapping| {
            mapping.container_name == container.name
                && resources.is_some_and(|resources| requests_extended(resources, &mapping.resource_name))
        });
        let of_container: Vec<&str> = of_container
            .map(|mapping| mapping.request_name.as_str())
            .collect();
        if !of_container.is_empty() {
            requests.push((&extended.resource_claim_name, of_container));
        }
    }
    Ok(requests)
}

/// Whether the claim was made for this pod, and if not, why (`IsForPod`).
pub(super) fn check_owner(pod: &Pod, claim: &ResourceClaim, gates: DraGates) -> Result<()> {
    let (namespace, pod_name) = of(pod);
    let claim_namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let claim_name = claim.metadata.name.as_deref().unwrap_or_default();
    if claim_namespace != namespace {
        return Err(Error::Claims(format!(
            "ResourceClaim {claim_namespace}/{claim_name} is not in the same namespace as Pod {namespace}/{pod_name}"
        )));
    }
    let owners = claim.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    let controller = controllers.next();
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    if controller.is_some_and(|owner| owner.uid == uid) {
        return Ok(());
    }
    let group = pod_group(pod).filter(|_| gates.workload_claims);
    let Some(group) = group else {
        return Err(Error::Claims(format!(
            "ResourceClaim {claim_namespace}/{claim_name} was not created for Pod {namespace}/{pod_name} (Pod is not owner)"
        )));
    };
    let is_of_group = controller.is_some_and(|owner| {
        owner.name == group && owner.kind == "PodGroup" && owner.api_version.starts_with("scheduling.k8s.io/")
    });
    match is_of_group {
        true => Ok(()),
        false => Err(Error::Claims(format!(
            "ResourceClaim {claim_namespace}/{claim_name} was not created for Pod {namespace}/{pod_name} (neither Pod nor \
             PodGroup {group} is the owner)"
        ))),
    }
}

/// Whether the claim is reserved for the pod, or for its group (`IsReservedForPod`).
pub(super) fn is_reserved(pod: &Pod, claim: &ResourceClaim, gates: DraGates) -> bool {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let group = pod_group(pod).filter(|_| gates.workload_claims);
    let reserved_for = claim
        .status
        .as_ref()
        .and_then(|status| status.reserved_for.as_ref());
    reserved_for.into_iter().flatten().any(|consumer| {
        consumer.uid == uid
            || group.is_some_and(|group| {
                consumer.api_group.as_deref() == Some("scheduling.k8s.io")
                    && consumer.resource == "podgroups"
                    && consumer.name == group
            })
    })
}

/// The claim that the scheduler made for the extended resources of the pod.
pub(super) fn extended_claim(pod: &Pod, gates: DraGates) -> Option<&PodExtendedResourceClaimStatus> {
    let status = pod.status.as_ref().filter(|_| gates.extended_resource)?;
    status.extended_resource_claim_status.as_ref()
}

pub(super) fn entries(pod: &Pod) -> &[PodResourceClaim] {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.resource_claims.as_deref())
        .unwrap_or_default()
}

fn requests_extended(resources: &ResourceRequirements, name: &str) -> bool {
    let requested = resources
        .requests
        .as_ref()
        .and_then(|requests| requests.get(name));
    requested.is_some_and(|quantity| Amount::try_from(quantity).is_ok_and(|amount| !amount.is_zero()))
        && is_extended_resource(name)
}

/// A name with a domain that is not Kubernetes' own (`IsDRAExtendedResourceName`).
fn is_extended_resource(name: &str) -> bool {
    if name.starts_with("deviceclass.resource.kubernetes.io/") {
        return true;
    }
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native && !name.starts_with("requests.")
}

fn pod_group(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    spec.scheduling_group.as_ref()?.pod_group_name.as_deref()
}

fn of(pod: &Pod) -> (&str, &str) {
    (
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default(),
    )
}
