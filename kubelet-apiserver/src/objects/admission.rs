//! Admission, in the order of the API server's plugins.

use serde_json::{Value, json};

use super::super::authorize;
use super::super::request::{Attributes, View};
use super::super::resource::Resource;
use super::super::status_error::StatusError;
use super::value::Fields;
use super::{metadata, persistent_volume, pod};

/// The namespaces that may not be deleted (`NamespaceLifecycle`).
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn create(
    attributes: &Attributes,
    view: &dyn View,
    rng: &mut fastrand::Rng,
    object: &mut Value,
) -> Result<(), StatusError> {
    namespace_is_open(attributes, view, object)?;
    if attributes.resource.kind == "Pod" {
        pod::admit_service_account(attributes, view, rng, object)?;
    }
    authorize::admit(attributes, None, Some(object), view)?;
    match attributes.resource.kind {
        "Pod" => pod::admit_create(attributes, view, object),
        "Node" => {
            taint_not_ready(object);
            Ok(())
        }
        "PersistentVolumeClaim" => {
            persistent_volume::set_default_class(object, view);
            Ok(())
        }
        #[cfg(feature = "tls")]
        "CertificateSigningRequest" => super::csr::admit_create(attributes, object),
        _ => Ok(()),
    }
}

pub(super) fn update(
    attributes: &Attributes,
    view: &dyn View,
    old: &Value,
    new: &mut Value,
) -> Result<(), StatusError> {
    authorize::admit(attributes, Some(old), Some(new), view)?;
    if attributes.resource.kind == "Pod" && attributes.subresource.is_empty() {
        pod::admit_update(old, new);
    }
    Ok(())
}

pub(super) fn delete(attributes: &Attributes, view: &dyn View, old: &Value) -> Result<(), StatusError> {
    let name = old["metadata"].text("name");
    if attributes.resource.kind == "Namespace" && IMMORTAL_NAMESPACES.contains(&name) {
        let why = "this namespace may not be deleted";
        return Err(StatusError::forbidden(attributes.resource, name, why));
    }
    authorize::admit(attributes, Some(old), None, view)
}

/// Admission of a `POST` to a sub-resource.
pub(super) fn post(attributes: &Attributes, view: &dyn View, body: &Value) -> Result<(), StatusError> {
    namespace_is_open(attributes, view, body)?;
    authorize::admit(attributes, None, Some(body), view)
}

/// `NamespaceLifecycle`.
fn namespace_is_open(attributes: &Attributes, view: &dyn View, object: &Value) -> Result<(), StatusError> {
    let namespace = attributes.namespace.as_str();
    if !attributes.resource.namespaced {
        return Ok(());
    }
    let Some(namespaces) = Resource::find("", "v1", "namespaces") else {
        return Ok(());
    };
    let Some(found) = view.get(namespaces, "", namespace) else {
        return Err(StatusError::not_found(namespaces, namespace));
    };
    if found["status"].text("phase") != "Terminating" && found["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let name = metadata::display_name(attributes, object);
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = StatusError::forbidden(attributes.resource, &name, &why);
    if let Some(details) = &mut error.details {
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
    }
    Err(error)
}

/// `TaintNodesByCondition`: a new node gets the taint `not-ready`.
fn taint_not_ready(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let tainted = node["spec"]
        .list("taints")
        .iter()
        .any(|taint| taint.text("key") == KEY && taint.text("effect") == "NoSchedule");
    if !tainted {
        let mut taints = node["spec"].list("taints").to_vec();
        taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
        node["spec"]["taints"] = Value::Array(taints);
    }
}
