//! `NodeRestriction` (`plugin/pkg/admission/noderestriction`): a kubelet may write only the objects of its own node.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

#[cfg(feature = "tls")]
use super::super::certificates::request;
use super::super::objects::{self, Fields};
use super::super::request::{Attributes, View};
use super::super::resource::Resource;
use super::super::status_error::StatusError;

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// Labels of Kubernetes that a kubelet may set on its node.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const KUBELET_LABEL_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Volumes that a mirror pod may not have, besides secrets and config maps, and their names in messages.
const VOLUME_REFERENCES: [(&str, &str); 4] = [
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
];

pub(super) fn admit(
    node: &str,
    attributes: &Attributes,
    old: Option<&Value>,
    new: Option<&Value>,
    view: &dyn View,
) -> Result<(), StatusError> {
    let resource = attributes.resource;
    let judged = match (resource.group, resource.plural) {
        ("", "pods") => admit_pod(node, attributes, old, new, view)?,
        ("", "nodes") => admit_node(node, attributes, old, new),
        ("", "serviceaccounts") => admit_token(node, attributes, new, view)?,
        ("coordination.k8s.io", "leases") => admit_lease(node, attributes, old, new),
        ("", "persistentvolumeclaims") => admit_claim(node, attributes, old, new),
        ("storage.k8s.io", "csinodes") => admit_csi_node(node, old, new),
        ("certificates.k8s.io", "podcertificaterequests") => {
            admit_certificate_request(node, attributes, old, new, view)?
        }
        #[cfg(feature = "tls")]
        ("certificates.k8s.io", "certificatesigningrequests") => admit_csr(node, attributes, old, new),
        _ => Ok(()),
    };
    judged.map_err(|why| {
        let name = objects::display_name(attributes, new.unwrap_or(&Value::Null));
        StatusError::forbidden(resource, &name, &why)
    })
}

type Judged = Result<(), String>;

fn refuse_if(wrong: bool, why: impl FnOnce() -> String) -> Judged {
    if wrong { Err(why()) } else { Ok(()) }
}

fn admit_pod(
    node: &str,
    attributes: &Attributes,
    old: Option<&Value>,
    new: Option<&Value>,
    view: &dyn View,
) -> Result<Judged, StatusError> {
    let is_own = |pod: &Value| pod["spec"].text("nodeName") == node;
    Ok(match (attributes.subresource, old, new) {
        ("", None, Some(pod)) => return admit_mirror_pod(node, pod, view),
        ("", Some(pod), None) => refuse_if(!is_own(pod), || {
            format!("node {node:?} can only delete pods with spec.nodeName set to itself")
        }),
        ("", ..) => Err(format!(
            "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
        )),
        ("status", Some(old), Some(new)) => admit_pod_status(node, is_own(old), old, new),
        ("eviction", _, Some(_)) => {
            let pods = Resource::find("", "v1", "pods");
            let pod = pods.and_then(|pods| view.get(pods, &attributes.namespace, &attributes.name));
            match pod {
                Some(pod) => refuse_if(!is_own(&pod), || {
                    format!("node {node} can only evict pods with spec.nodeName set to itself")
                }),
                None => return Err(StatusError::not_found(attributes.resource, &attributes.name)),
            }
        }
        (other, ..) => Err(format!(
            "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
        )),
    })
}

fn admit_pod_status(node: &str, is_own: bool, old: &Value, new: &Value) -> Judged {
    refuse_if(!is_own, || {
        format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself")
    })?;
    let labels = |pod: &Value| labels(pod);
    refuse_if(labels(old) != labels(new), || {
        format!("node {node:?} cannot update labels through pod status")
    })?;
    for (key, what) in [
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
    ] {
        refuse_if(old["status"][key] != new["status"][key], || {
            format!("node {node:?} cannot update {what}")
        })?;
    }
    Ok(())
}

/// A node may create mirror pods only.
fn admit_mirror_pod(node: &str, pod: &Value, view: &dyn View) -> Result<Judged, StatusError> {
    let judge = || -> Judged {
        let meta = &pod["metadata"];
        refuse_if(!meta["annotations"].has(MIRROR_ANNOTATION), || {
            format!(
                "pod does not have {MIRROR_ANNOTATION:?} annotation, node {node:?} can only create mirror pods"
            )
        })?;
        refuse_if(pod["spec"].text("nodeName") != node, || {
            format!("node {node:?} can only create pods with spec.nodeName set to itself")
        })?;
        let owners = meta.list("ownerReferences");
        refuse_if(owners.len() > 1, || {
            format!("node {node:?} can only create pods with a single owner reference set to itself")
        })?;
        let is_node = owners.first().is_some_and(|owner| {
            owner.text("apiVersion") == "v1" && owner.text("kind") == "Node" && owner.text("name") == node
        });
        refuse_if(!is_node, || {
            format!("node {node:?} can only create pods with an owner reference set to itself")
        })?;
        let owner = &owners[0];
        refuse_if(!owner.flag("controller"), || {
            format!("node {node:?} can only create pods with a controller owner reference set to itself")
        })?;
        refuse_if(owner.flag("blockOwnerDeletion"), || {
            format!("node {node:?} must not set blockOwnerDeletion on an owner reference")
        })
    };
    if let Err(why) = judge() {
        return Ok(Err(why));
    }
    let Some(nodes) = Resource::find("", "v1", "nodes") else {
        return Ok(Ok(()));
    };
    let Some(object) = view.get(nodes, "", node) else {
        return Err(StatusError::not_found(nodes, node));
    };
    let given = pod["metadata"].list("ownerReferences")[0].text("uid");
    let uid = object["metadata"].text("uid");
    Ok(refuse_if(given != uid, || {
        format!("node {node} UID mismatch: expected {given} got {uid}")
    })
    .and_then(|()| match api_reference(&pod["spec"]) {
        Some(what) => Err(format!("node {node:?} can not create pods that reference {what}")),
        None => Ok(()),
    }))
}

/// `HasAPIObjectReference`: the first object of the API that a pod refers to.
fn api_reference(spec: &Value) -> Option<&'static str> {
    if !spec.text("serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    let containers = || {
        ["containers", "initContainers", "ephemeralContainers"]
            .into_iter()
            .flat_map(|key| spec.list(key))
    };
    let refers = |key_ref: &str, reference: &str| {
        containers().any(|container| {
            let env = container
                .list("env")
                .iter()
                .any(|variable| variable["valueFrom"].has(key_ref));
            env || container.list("envFrom").iter().any(|from| from.has(reference))
        })
    };
    let projects = |kind: &str| {
        let mut sources = spec
            .list("volumes")
            .iter()
            .flat_map(|volume| volume["projected"].list("sources"));
        sources.any(|source| source.has(kind))
    };
    let mounts = |kind: &str| spec.list("volumes").iter().any(|volume| volume.has(kind));
    if !spec.list("imagePullSecrets").is_empty()
        || refers("secretKeyRef", "secretRef")
        || projects("secret")
        || mounts("secret")
    {
        return Some("secrets");
    }
    if refers("configMapKeyRef", "configMapRef") || projects("configMap") || mounts("configMap") {
        return Some("configmaps");
    }
    if !spec.list("resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    for (kind, what) in VOLUME_REFERENCES {
        if mounts(kind) {
            return Some(what);
        }
    }
    for (kind, what) in [
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ] {
        if projects(kind) {
            return Some(what);
        }
    }
    None
}

fn admit_node(node: &str, attributes: &Attributes, old: Option<&Value>, new: Option<&Value>) -> Judged {
    let given = [
        Some(attributes.name.as_str()),
        new.map(|new| new["metadata"].text("name")),
    ]
    .into_iter()
    .flatten()
    .find(|name| !name.is_empty())
    .unwrap_or_default();
    refuse_if(given != node, || {
        format!("node {node:?} is not allowed to modify node {given:?}")
    })?;
    let Some(new) = new else { return Ok(()) };
    let none = Value::Null;
    let before = old.unwrap_or(&none);
    if old.is_some() {
        for (path, what) in [
            ("/spec/taints", "taints"),
            ("/metadata/ownerReferences", "ownerReferences"),
        ] {
            let items = |object: &Value| {
                let list = object.pointer(path).and_then(Value::as_array).cloned();
                list.unwrap_or_default()
            };
            refuse_if(items(before) != items(new), || {
                format!("node {node:?} is not allowed to modify {what}")
            })?;
        }
    }
    if new["spec"].has("configSource") && new["spec"]["configSource"] != before["spec"]["configSource"] {
        return Err(if old.is_some() {
            format!("node {node:?} is not allowed to update configSource to a new non-nil configSource")
        } else {
            format!("node {node:?} is not allowed to create pods with a non-nil configSource")
        });
    }
    let forbidden = forbidden_labels(&labels(before), &labels(new));
    refuse_if(!forbidden.is_empty(), || {
        let list: Vec<&str> = forbidden.iter().map(String::as_str).collect();
        let list = list.join(", ");
        if old.is_some() {
            format!("is not allowed to modify labels: {list}")
        } else {
            format!("node {node:?} is not allowed to set the following labels: {list}")
        }
    })
}

fn labels(object: &Value) -> Map<String, Value> {
    object["metadata"]["labels"]
        .as_object()
        .cloned()
        .unwrap_or_default()
}

/// The labels that differ and that a kubelet may not change.
fn forbidden_labels(old: &Map<String, Value>, new: &Map<String, Value>) -> BTreeSet<String> {
    let differing = old
        .keys()
        .chain(new.keys())
        .filter(|key| old.get(*key) != new.get(*key));
    differing
        .filter(|key| {
            let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
            let within = |domain: &str| {
                namespace
                    .strip_suffix(domain)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            };
            let of_kubelet =
                KUBELET_LABELS.contains(&key.as_str()) || KUBELET_LABEL_NAMESPACES.into_iter().any(within);
            within("node-restriction.kubernetes.io")
                || (within("kubernetes.io") || within("k8s.io")) && !of_kubelet
        })
        .cloned()
        .collect()
}

fn admit_token(
    node: &str,
    attributes: &Attributes,
    request: Option<&Value>,
    view: &dyn View,
) -> Result<Judged, StatusError> {
    let (Some(request), "token") = (request, attributes.subresource) else {
        return Ok(Ok(()));
    };
    let reference = &request["spec"]["boundObjectRef"];
    if reference.text("apiVersion") != "v1"
        || reference.text("kind") != "Pod"
        || reference.text("name").is_empty()
    {
        return Ok(Err("node requested token not bound to a pod".into()));
    }
    let uid = reference.text("uid");
    if uid.is_empty() {
        return Ok(Err("node requested token with a pod binding without a uid".into()));
    }
    let Some(pods) = Resource::find("", "v1", "pods") else {
        return Ok(Ok(()));
    };
    let name = reference.text("name");
    let Some(pod) = view.get(pods, &attributes.namespace, name) else {
        return Err(StatusError::not_found(pods, name));
    };
    if pod["metadata"].text("uid") != uid {
        return Ok(Err(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        )));
    }
    if pod["spec"].text("nodeName") != node {
        return Ok(Err(
            "node requested token bound to a pod scheduled on a different node".into(),
        ));
    }
    Ok(check_audience(request, &pod, &attributes.user.name, view))
}

/// A node may request tokens only for the audiences that its pod names.
fn check_audience(request: &Value, pod: &Value, user: &str, view: &dyn View) -> Judged {
    let audience = match request["spec"].list("audiences") {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return Err("node may only request 0 or 1 audiences".into()),
    };
    let mut sources = pod["spec"]
        .list("volumes")
        .iter()
        .flat_map(|volume| volume["projected"].list("sources"));
    let named = sources.any(|source| {
        let token = source.field("serviceAccountToken");
        token.is_some_and(|token| token.text("audience") == audience)
    });
    refuse_if(!named && !drivers_want(audience, pod, view), || {
        format!(
            "audience {audience:?} not found in pod spec volume, {user} is not authorized to request tokens for this \
             audience"
        )
    })
}

/// Whether a CSI driver of the pod's volumes wants tokens for this audience (`tokenRequests`).
fn drivers_want(audience: &str, pod: &Value, view: &dyn View) -> bool {
    let stored = |group: &str, plural: &str, namespace: &str, name: &str| {
        Resource::find(group, "v1", plural).and_then(|resource| view.get(resource, namespace, name))
    };
    let namespace = pod["metadata"].text("namespace");
    let of_claims = super::node::claims(pod).filter_map(|claim| {
        let claim = stored("", "persistentvolumeclaims", namespace, &claim)?;
        let volume = stored("", "persistentvolumes", "", claim["spec"].text("volumeName"))?;
        Some(volume["spec"]["csi"].text("driver").to_owned())
    });
    let volumes = pod["spec"].list("volumes").iter();
    let inline = volumes.map(|volume| volume["csi"].text("driver").to_owned());
    of_claims.chain(inline).any(|driver| {
        stored("storage.k8s.io", "csidrivers", "", &driver).is_some_and(|driver| {
            let mut requests = driver["spec"].list("tokenRequests").iter();
            requests.any(|request| request.text("audience") == audience)
        })
    })
}

/// A node may change how large a claim's volume is, and the conditions that belong to that.
fn admit_claim(node: &str, attributes: &Attributes, old: Option<&Value>, new: Option<&Value>) -> Judged {
    refuse_if(attributes.subresource != "status", || {
        "may only update PVC status".to_owned()
    })?;
    let (Some(old), Some(new)) = (old, new) else {
        return Err("unexpected operation \"CREATE\"".to_owned());
    };
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for key in ["resourceVersion", "managedFields"] {
            claim["metadata"].fields_mut().remove(key);
        }
        for key in [
            "capacity",
            "conditions",
            "allocatedResources",
            "allocatedResourceStatuses",
        ] {
            claim["status"].fields_mut().remove(key);
        }
        claim
    };
    refuse_if(rest(old) != rest(new), || {
        format!(
            "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
        )
    })
}

fn admit_csi_node(node: &str, old: Option<&Value>, new: Option<&Value>) -> Judged {
    let name = old
        .or(new)
        .map_or("", |csi_node| csi_node["metadata"].text("name"));
    refuse_if(name != node, || {
        "can only access CSINode with the same name as the requesting node".into()
    })
}

/// A node may request certificates for its pods, as what they are.
fn admit_certificate_request(
    node: &str,
    attributes: &Attributes,
    old: Option<&Value>,
    new: Option<&Value>,
    view: &dyn View,
) -> Result<Judged, StatusError> {
    let (None, Some(request), "") = (old, new, attributes.subresource) else {
        return Ok(Err("unexpected operation UPDATE".to_owned()));
    };
    let (spec, namespace) = (&request["spec"], attributes.namespace.as_str());
    let named = spec.text("nodeName");
    if named != node {
        return Ok(Err(format!(
            "PodCertificateRequest.Spec.NodeName={named:?}, which is not the requesting node {node:?}"
        )));
    }
    let name_of_pod = format!("{namespace}/{}", spec.text("podName"));
    // Not forbidden: what the request names may appear in a moment.
    let later =
        |why: String| StatusError::new(500, "InternalError", format!("Internal error occurred: {why}"));
    let find = |plural: &str, namespace: &str, name: &str| {
        let found = Resource::find("", "v1", plural).and_then(|resource| view.get(resource, namespace, name));
        found.ok_or_else(|| {
            later(format!(
                "while retrieving {plural} {name:?} named in the PodCertificateRequest"
            ))
        })
    };
    let node = find("nodes", "", named)?;
    let pod = find("pods", namespace, spec.text("podName"))?;
    let account = find("serviceaccounts", namespace, spec.text("serviceAccountName"))?;
    for (key, object, what) in [
        ("nodeUID", &node, "node UID"),
        ("podUID", &pod, "pod UID"),
        ("serviceAccountUID", &account, "service account UID"),
    ] {
        let (given, uid) = (spec.text(key), object["metadata"].text("uid"));
        if given != uid {
            let why = format!(
                "PodCertificateRequest for pod {name_of_pod:?} names {what} {given:?}, inconsistent with {uid:?}"
            );
            return Err(later(why));
        }
    }
    if pod["spec"].text("nodeName") != named {
        return Ok(Err(format!(
            "pod {name_of_pod:?} is not running on node {named:?} named in the PodCertificateRequest"
        )));
    }
    if pod["metadata"]["annotations"].has(MIRROR_ANNOTATION) {
        return Ok(Err(format!("pod {name_of_pod:?} is a mirror pod")));
    }
    let (given, of_pod) = (
        spec.text("serviceAccountName"),
        pod["spec"].text("serviceAccountName"),
    );
    Ok(refuse_if(given != of_pod, || {
        format!(
            "PodCertificateRequest for pod {name_of_pod:?} contains serviceAccountName ({given:?}) that differs from \
             running pod ({of_pod:?})"
        )
    }))
}

fn admit_lease(node: &str, attributes: &Attributes, old: Option<&Value>, new: Option<&Value>) -> Judged {
    refuse_if(attributes.namespace != NODE_LEASE_NAMESPACE, || {
        format!("can only access leases in the {NODE_LEASE_NAMESPACE:?} system namespace")
    })?;
    let name = old.or(new).map_or("", |lease| lease["metadata"].text("name"));
    refuse_if(name != node, || {
        "can only access node lease with the same name as the requesting node".into()
    })
}

#[cfg(feature = "tls")]
fn admit_csr(node: &str, attributes: &Attributes, old: Option<&Value>, new: Option<&Value>) -> Judged {
    let (None, Some(csr), "") = (old, new, attributes.subresource) else {
        return Ok(());
    };
    let signer = csr["spec"].text("signerName");
    if !matches!(
        signer,
        "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet"
    ) {
        return Ok(());
    }
    let parsed =
        request::parse(csr["spec"].text("request")).map_err(|why| format!("unable to parse csr: {why}"))?;
    refuse_if(parsed.common_name != format!("system:node:{node}"), || {
        format!("can only create a node CSR with CN=system:node:{node}")
    })
}
