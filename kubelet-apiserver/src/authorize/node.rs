//! The Node authorizer (`plugin/pkg/auth/authorizer/node`): a node may read the objects that its pods refer to.

use std::sync::Arc;

use serde_json::Value;

use super::super::objects::Fields;
use super::super::request::View;
use super::super::resource::Resource;
use super::access::Access;

const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Whether the kubelet of `node` may do this. If not, the reason, where there is one.
pub(super) fn authorize(node: &str, access: &Access<'_>, view: &dyn View) -> Result<(), String> {
    if access.path.is_some() {
        return Err(String::new());
    }
    let Access {
        verb,
        group,
        resource,
        subresource,
        ..
    } = access;
    match (*group, *resource) {
        ("", "secrets" | "configmaps") => read_referenced(node, access, view),
        ("", "serviceaccounts") => service_account(node, access, view),
        ("coordination.k8s.io", "leases") => lease(node, access),
        ("", "nodes") => own_node(node, access),
        ("", "persistentvolumeclaims" | "persistentvolumes") | ("storage.k8s.io", "volumeattachments") => {
            volume(node, access, view)
        }
        ("storage.k8s.io", "csinodes") => csi_node(node, access),
        ("resource.k8s.io", "resourceclaims") => {
            allow_if(
                access.verb == "get",
                "can only get individual resources of this type",
            )?;
            allow_if(access.subresource.is_empty(), "cannot get subresource")?;
            related(node, access, view)
        }
        ("certificates.k8s.io", "podcertificaterequests") => pod_certificate_request(node, access, view),
        ("", "pods") => pod(node, access, view),
        // The role `system:node` decides the rest.
        (group, plural) => {
            let verbs: &[&str] = match (group, plural, *subresource) {
                ("", "services", "") => &["get", "list", "watch"],
                (_, "events", "") => &["create", "update", "patch"],
                ("certificates.k8s.io", "certificatesigningrequests", "") => {
                    &["create", "get", "list", "watch"]
                }
                ("authentication.k8s.io", "tokenreviews", "")
                | ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews", "") => {
                    &["create"]
                }
                // The kubelet deletes the slices of drivers that are gone; drivers publish theirs as the node.
                ("resource.k8s.io", "resourceslices", "") => &[
                    "get",
                    "list",
                    "watch",
                    "create",
                    "update",
                    "patch",
                    "delete",
                    "deletecollection",
                ],
                ("node.k8s.io", "runtimeclasses", "")
                | ("storage.k8s.io", "csidrivers", "")
                | ("certificates.k8s.io", "clustertrustbundles", "") => &["get", "list", "watch"],
                _ => &[],
            };
            allow_if(verbs.contains(verb), "")
        }
    }
}

fn allow_if(allowed: bool, why: &str) -> Result<(), String> {
    if allowed { Ok(()) } else { Err(why.to_owned()) }
}

fn read_referenced(node: &str, access: &Access<'_>, view: &dyn View) -> Result<(), String> {
    let reads = matches!(access.verb, "get" | "list" | "watch");
    allow_if(reads, "can only read resources of this type")?;
    allow_if(access.subresource.is_empty(), "cannot read subresource")?;
    allow_if(
        !access.namespace.is_empty(),
        "can only read namespaced object of this type",
    )?;
    related(node, access, view)
}

fn service_account(node: &str, access: &Access<'_>, view: &dyn View) -> Result<(), String> {
    if access.verb == "get" && access.subresource.is_empty() {
        return read_referenced(node, access, view);
    }
    allow_if(
        access.verb == "create" && !access.name.is_empty(),
        "can only create tokens for individual service accounts",
    )?;
    allow_if(
        access.subresource == "token",
        "can only create token subresource of serviceaccount",
    )?;
    related(node, access, view)
}

fn lease(node: &str, access: &Access<'_>) -> Result<(), String> {
    let verb = access.verb;
    allow_if(
        matches!(verb, "get" | "create" | "update" | "patch" | "delete"),
        "can only get, create, update, patch, or delete a node lease",
    )?;
    allow_if(
        access.namespace == NODE_LEASE_NAMESPACE,
        &format!("can only access leases in the {NODE_LEASE_NAMESPACE:?} system namespace"),
    )?;
    allow_if(
        verb == "create" || access.name == node,
        "can only access node lease with the same name as the requesting node",
    )
}

/// Claims and volumes of the node's pods, and attachments to the node.
fn volume(node: &str, access: &Access<'_>, view: &dyn View) -> Result<(), String> {
    if (access.resource, access.subresource) == ("persistentvolumeclaims", "status") {
        let writes = matches!(access.verb, "update" | "patch");
        allow_if(writes, "can only get/update/patch this type")?;
    } else {
        allow_if(
            access.verb == "get",
            "can only get individual resources of this type",
        )?;
        allow_if(access.subresource.is_empty(), "cannot get subresource")?;
    }
    related(node, access, view)
}

fn csi_node(node: &str, access: &Access<'_>) -> Result<(), String> {
    let verb = access.verb;
    allow_if(
        matches!(verb, "get" | "create" | "update" | "patch" | "delete"),
        "can only get, create, update, patch, or delete a CSINode",
    )?;
    allow_if(
        access.subresource.is_empty(),
        "cannot authorize CSINode subresources",
    )?;
    allow_if(
        verb == "create" || access.name == node,
        "can only access CSINode with the same name as the requesting node",
    )
}

fn pod_certificate_request(node: &str, access: &Access<'_>, view: &dyn View) -> Result<(), String> {
    allow_if(
        access.subresource.is_empty(),
        "nodes may not access the status subresource of PodCertificateRequests",
    )?;
    match access.verb {
        "create" => Ok(()),
        "get" => related(node, access, view),
        "list" | "watch" => allow_if(
            selects_node(access, node),
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        verb => Err(format!("nodes may not {verb} podcertificaterequests")),
    }
}

/// Whether the request's field selector is restricted to the node.
fn selects_node(access: &Access<'_>, node: &str) -> bool {
    access.field_selector.split(',').any(|requirement| {
        let value = requirement.trim().strip_prefix("spec.nodeName=");
        value.is_some_and(|value| value.strip_prefix('=').unwrap_or(value) == node)
    })
}

fn own_node(node: &str, access: &Access<'_>) -> Result<(), String> {
    let name = &*access.name;
    match (access.subresource, access.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") if name == node => Ok(()),
        ("", "get" | "list" | "watch") if name.is_empty() => Err(format!(
            "node '{node}' cannot read all nodes, only its own Node object"
        )),
        ("", "get" | "list" | "watch") => Err(format!(
            "node '{node}' cannot read '{name}', only its own Node object"
        )),
        _ => Err(String::new()),
    }
}

fn pod(node: &str, access: &Access<'_>, view: &dyn View) -> Result<(), String> {
    match (access.subresource, access.verb) {
        ("", "get") => related(node, access, view),
        ("", "list" | "watch") => {
            if selects_node(access, node) {
                return Ok(());
            }
            if !access.name.is_empty() {
                return related(node, access, view);
            }
            Err("can only list/watch pods with spec.nodeName field selector".into())
        }
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
        _ => Err(String::new()),
    }
}

/// Whether one of the node's pods refers to the object, or is it.
fn related(node: &str, access: &Access<'_>, view: &dyn View) -> Result<(), String> {
    let (namespace, name) = (access.namespace, &*access.name);
    allow_if(!name.is_empty(), "No Object name found")?;
    let stored = |group: &str, version: &str, plural: &str| {
        Resource::find(group, version, plural).and_then(|resource| view.get(resource, namespace, name))
    };
    let is_on_node = |object: &Value| object["spec"].text("nodeName") == node;
    let is_related = match access.resource {
        "pods" => stored("", "v1", "pods").is_some_and(|pod| is_on_node(&pod)),
        "volumeattachments" => {
            stored("storage.k8s.io", "v1", "volumeattachments").is_some_and(|it| is_on_node(&it))
        }
        "podcertificaterequests" => {
            let request = stored("certificates.k8s.io", "v1beta1", "podcertificaterequests");
            request.is_some_and(|request| is_on_node(&request))
        }
        "persistentvolumes" => {
            stored("", "v1", "persistentvolumes").is_some_and(|volume| is_claimed_on(node, &volume, view))
        }
        "secrets" => pod_refers(node, access, view) || volumes_refer(node, namespace, name, view),
        _ => pod_refers(node, access, view),
    };
    allow_if(
        is_related,
        &format!("no relationship found between node '{node}' and this object"),
    )
}

/// The resource claims of a pod: those that it names, and those that were made for it.
fn resource_claims(pod: &Value) -> impl Iterator<Item = &str> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let named = spec.list("resourceClaims").iter();
    let made = status.list("resourceClaimStatuses").iter();
    named
        .chain(made)
        .chain([&status["extendedResourceClaimStatus"]])
        .map(|claim| claim.text("resourceClaimName"))
        .filter(|name| !name.is_empty())
}

fn pod_refers(node: &str, access: &Access<'_>, view: &dyn View) -> bool {
    pods_of(node, access.namespace, view)
        .iter()
        .any(|pod| match access.resource {
            "persistentvolumeclaims" => claims(pod).any(|claim| claim == *access.name),
            "resourceclaims" => resource_claims(pod).any(|claim| claim == &*access.name),
            plural => refers(&pod["spec"], plural, &access.name),
        })
}

/// The pods of a node that give it access to objects.
fn pods_of(node: &str, namespace: &str, view: &dyn View) -> Vec<Arc<Value>> {
    let pods = Resource::find("", "v1", "pods").map(|pods| view.list(pods, namespace));
    let mut pods = pods.unwrap_or_default();
    pods.retain(|pod| pod["spec"].text("nodeName") == node && !is_mirror(pod));
    pods
}

/// The names of a pod's claims, those of ephemeral volumes among them.
pub(crate) fn claims(pod: &Value) -> impl Iterator<Item = String> {
    pod["spec"].list("volumes").iter().filter_map(|volume| {
        if volume["ephemeral"].has("volumeClaimTemplate") {
            return Some(format!(
                "{}-{}",
                pod["metadata"].text("name"),
                volume.text("name")
            ));
        }
        let claim = volume.field("persistentVolumeClaim")?;
        Some(claim.text("claimName").to_owned())
    })
}

/// Whether a pod of the node uses the claim that a persistent volume is bound to.
fn is_claimed_on(node: &str, volume: &Value, view: &dyn View) -> bool {
    let claim = &volume["spec"]["claimRef"];
    let pods = pods_of(node, claim.text("namespace"), view);
    claim.is_object()
        && pods
            .iter()
            .any(|pod| claims(pod).any(|name| name == claim.text("name")))
}

/// Whether a persistent volume that the node's pods use refers to a secret.
fn volumes_refer(node: &str, namespace: &str, name: &str, view: &dyn View) -> bool {
    let Some(volumes) = Resource::find("", "v1", "persistentvolumes") else {
        return false;
    };
    let is_it = |reference: &Value, volume: &Value| {
        let of = match reference.text("namespace") {
            "" => volume["spec"]["claimRef"].text("namespace"),
            of => of,
        };
        reference.text("name") == name && of == namespace
    };
    view.list(volumes, "").iter().any(|volume| {
        let sources = volume["spec"].as_object().into_iter().flatten();
        let mut references = sources.flat_map(|(_, source)| {
            let keys = [
                "secretRef",
                "nodePublishSecretRef",
                "nodeStageSecretRef",
                "nodeExpandSecretRef",
            ];
            keys.into_iter().filter_map(|key| source.get(key))
        });
        references.any(|reference| is_it(reference, volume)) && is_claimed_on(node, volume, view)
    })
}

/// The mirror pod of a static pod gives its node no access.
fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].has("kubernetes.io/config.mirror")
}

fn refers(spec: &Value, plural: &str, name: &str) -> bool {
    match plural {
        "serviceaccounts" => spec.text("serviceAccountName") == name,
        "secrets" => {
            let pulls = spec
                .list("imagePullSecrets")
                .iter()
                .any(|secret| secret.text("name") == name);
            pulls
                || refers_by_key(spec, "secret", name)
                || spec
                    .list("volumes")
                    .iter()
                    .any(|volume| volume["secret"].text("secretName") == name || other_secret(volume, name))
        }
        _ => {
            refers_by_key(spec, "configMap", name)
                || spec
                    .list("volumes")
                    .iter()
                    .any(|volume| volume["configMap"].text("name") == name)
        }
    }
}

/// References of containers and projected volumes.
fn refers_by_key(spec: &Value, kind: &str, name: &str) -> bool {
    let (key_ref, reference) = (format!("{kind}KeyRef"), format!("{kind}Ref"));
    let in_containers = CONTAINER_LISTS
        .into_iter()
        .flat_map(|key| spec.list(key))
        .any(|container| {
            let env = container
                .list("env")
                .iter()
                .any(|variable| variable["valueFrom"][&key_ref].text("name") == name);
            env || container
                .list("envFrom")
                .iter()
                .any(|from| from[&reference].text("name") == name)
        });
    in_containers
        || spec
            .list("volumes")
            .iter()
            .flat_map(|volume| volume["projected"].list("sources"))
            .any(|source| source[kind].text("name") == name)
}

/// Secrets that other volume sources refer to.
fn other_secret(volume: &Value, name: &str) -> bool {
    let by_reference = ["cephfs", "rbd", "iscsi", "flexVolume", "scaleIO", "storageos"]
        .iter()
        .any(|source| volume[source]["secretRef"].text("name") == name);
    by_reference
        || volume["azureFile"].text("secretName") == name
        || volume["csi"]["nodePublishSecretRef"].text("name") == name
}
