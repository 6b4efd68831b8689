//! Field selectors: what each kind can be selected by.

use serde_json::Value;

use super::super::resource::Resource;
use super::super::status_error::StatusError;
use super::value::Fields;

/// The fields that objects of a kind can be selected by, besides their names.
fn labels(resource: &Resource) -> &'static [&'static str] {
    match (resource.group, resource.kind) {
        (_, "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "spec.host",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        (_, "Node") => &["spec.unschedulable"],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        (_, "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        (_, "Namespace") => &["status.phase"],
        (_, "Secret") => &["type"],
        (_, "Service") => &["spec.clusterIP", "spec.type"],
        (_, "CertificateSigningRequest" | "ClusterTrustBundle") => &["spec.signerName"],
        (_, "PodCertificateRequest") => &["spec.signerName", "spec.podName", "spec.nodeName"],
        (_, "ResourceSlice") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

/// Rejects a field label that the kind does not support.
///
/// # Errors
///
/// 400 `field label not supported`.
pub(crate) fn check_field_label(resource: &Resource, label: &str) -> Result<(), StatusError> {
    // Kinds with field labels of their own have no namespace label if they are cluster-wide; the others always have
    // it.
    let own = labels(resource);
    let known = label == "metadata.name"
        || label == "metadata.namespace" && (resource.namespaced || own.is_empty())
        || own.contains(&label);
    if known {
        return Ok(());
    }
    let message = if own.is_empty() {
        format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {label}")
    };
    Err(StatusError::bad_request(message))
}

/// The value of a label that [`check_field_label`] accepted; empty if the object has none.
pub(crate) fn selectable_field(resource: &Resource, object: &Value, label: &str) -> String {
    match (resource.kind, label) {
        ("Pod", "spec.hostNetwork") => return object["spec"].flag("hostNetwork").to_string(),
        ("Pod", "spec.host") => return object["spec"].text("nodeName").to_owned(),
        ("Pod", "status.podIP") => return object["status"]["podIPs"][0].text("ip").to_owned(),
        // Accepted, but no pod has this field.
        ("Pod", "status.podIPs") => return String::new(),
        ("Node", "spec.unschedulable") => return object["spec"].flag("unschedulable").to_string(),
        ("Event", "source") => {
            let component = object["source"].text("component");
            let reporter = object.text("reportingComponent");
            return if component.is_empty() { reporter } else { component }.to_owned();
        }
        _ => {}
    }
    let pointer = format!("/{}", label.replace('.', "/"));
    object
        .pointer(&pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
