//! Creation and update: admission, the strategy of the kind, validation (`rest.BeforeCreate`, `rest.BeforeUpdate`).

use serde_json::{Value, json};

use super::super::request::{Attributes, View};
use super::super::schema;
use super::super::status_error::{Cause, StatusError};
use super::problems::Problems;
use super::value::Fields;
use super::{
    admission, claim, config, event, lease, metadata, namespace, node, persistent_volume, pod,
    pod_certificate, runtime_class, service, service_account, storage,
};

/// The error for a write that was made from an older object.
const OPTIMISTIC_LOCK: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Prepares a decoded object for storage: admission, system fields (`uid`, `creationTimestamp`, a name for
/// `generateName`, `generation`), the kind's strategy, validation.
///
/// The caller sets `resourceVersion`, and rejects a name that is taken.
///
/// # Errors
///
/// The errors of admission and validation.
pub(crate) fn prepare_create(
    attributes: &Attributes,
    view: &dyn View,
    rng: &mut fastrand::Rng,
    object: Value,
) -> Result<Value, StatusError> {
    let mut object = object;
    if !matches!(object["metadata"].text("resourceVersion"), "" | "0") {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(StatusError::new(500, "", why));
    }
    metadata::agree_on_namespace(attributes, &mut object)?;
    admission::create(attributes, view, rng, &mut object)?;
    metadata::fill(attributes, rng, &mut object);
    if attributes.resource.kind != "Pod" {
        metadata::remove(&mut object, "/metadata", "generation");
    }
    match attributes.resource.kind {
        "Pod" => pod::prepare_create(&mut object),
        "Node" => {
            metadata::remove(&mut object, "/spec", "configSource");
        }
        "Lease" => lease::prepare(&mut object),
        "Namespace" => namespace::prepare_create(&mut object),
        "Service" => service::prepare_create(attributes, view, &mut object),
        "ServiceAccount" => service_account::prepare(&mut object),
        #[cfg(feature = "tls")]
        "CertificateSigningRequest" => super::csr::prepare_create(attributes, &mut object),
        "PersistentVolume" => persistent_volume::prepare_create(attributes, &mut object),
        "PersistentVolumeClaim" => object["status"] = json!({"phase": "Pending"}),
        "VolumeAttachment" => object["status"] = json!({"attached": false}),
        "PodCertificateRequest" | "ResourceClaim" => object["status"] = json!({}),
        _ => {}
    }
    let mut problems = Problems::default();
    validate(attributes, &object, &mut problems);
    refuse(attributes, &object, problems)?;
    Ok(complete(attributes, object))
}

/// Prepares a decoded object to replace `old`: the object itself, or a sub-resource that is written with `PUT` and
/// `PATCH` (`status`, `approval`, `resize`, `ephemeralcontainers`).
///
/// For what a request may not change, this takes the value of `old` or returns an error, as the API server does for
/// the field. If the result is equal to `old`, do not write it. `resourceVersion` and, in a `PUT`, `uid` are
/// preconditions; the result has those of `old`.
///
/// # Errors
///
/// 409 for a failed precondition, and the errors of admission and validation.
pub(crate) fn prepare_update(
    attributes: &Attributes,
    view: &dyn View,
    old: &Value,
    new: Value,
) -> Result<Value, StatusError> {
    let mut new = new;
    if attributes.verb == "update" {
        check_name(attributes, &new)?;
        check_uid(attributes, old, &new)?;
    }
    if attributes.resource.namespaced {
        new["metadata"].default_text("namespace", &attributes.namespace);
    }
    metadata::agree_on_namespace(attributes, &mut new)?;
    admission::update(attributes, view, old, &mut new)?;
    check_version(attributes, old, &mut new)?;
    metadata::copy_field(&old["metadata"], &mut new["metadata"], "generation");
    metadata::copy_field(&old["metadata"], &mut new["metadata"], "selfLink");
    match attributes.resource.kind {
        "Pod" => pod::prepare_update(attributes, old, &mut new),
        "Node" => node::prepare_update(attributes, old, &mut new),
        "Lease" => lease::prepare(&mut new),
        "Namespace" => namespace::prepare_update(attributes, old, &mut new),
        "Service" => service::prepare_update(attributes, old, &mut new),
        "ServiceAccount" => service_account::prepare(&mut new),
        #[cfg(feature = "tls")]
        "CertificateSigningRequest" => super::csr::prepare_update(attributes, old, &mut new),
        "PersistentVolume"
        | "PersistentVolumeClaim"
        | "VolumeAttachment"
        | "PodCertificateRequest"
        | "ResourceClaim" => {
            let kept = if attributes.subresource == "status" {
                "spec"
            } else {
                "status"
            };
            metadata::copy_field(old, &mut new, kept);
        }
        _ => {}
    }
    metadata::keep(old, &mut new);
    let mut problems = Problems::default();
    metadata::validate(
        &new,
        attributes.resource.namespaced,
        super::names::path_segment,
        &mut problems,
    );
    metadata::validate_update(&new, old, &mut problems);
    validate_update(attributes, old, &new, &mut problems);
    refuse(attributes, &new, problems)?;
    Ok(complete(attributes, new))
}

fn validate(attributes: &Attributes, object: &Value, problems: &mut Problems) {
    match attributes.resource.kind {
        "Pod" => pod::validate_create(object, problems),
        "Node" => node::validate(object, problems),
        "Lease" => lease::validate(object, problems),
        "Event" => event::validate(attributes, object, problems),
        "Secret" => config::validate_secret(object, problems),
        "ConfigMap" => config::validate_config_map(object, problems),
        "Namespace" => namespace::validate(object, problems),
        "Service" => service::validate(object, problems),
        "ServiceAccount" => service_account::validate(object, problems),
        "RuntimeClass" => runtime_class::validate(object, problems),
        #[cfg(feature = "tls")]
        "CertificateSigningRequest" => super::csr::validate(object, problems),
        "PersistentVolume" => persistent_volume::validate(object, problems),
        "PersistentVolumeClaim" => persistent_volume::validate_claim(object, problems),
        "StorageClass" => storage::validate_class(object, problems),
        "CSIDriver" => storage::validate_driver(object, problems),
        "CSINode" => storage::validate_node(object, problems),
        "ResourceClaim" => claim::validate(object, problems),
        "ResourceClaimTemplate" => claim::validate_template(object, problems),
        "DeviceClass" => claim::validate_class(object, problems),
        "ResourceSlice" => claim::validate_slice(object, problems),
        "VolumeAttachment" => storage::validate_attachment(object, problems),
        "ClusterTrustBundle" => pod_certificate::validate_bundle(object, problems),
        "PodCertificateRequest" => pod_certificate::validate_request(object, problems),
        _ => {}
    }
    if problems.is_empty() {
        let namespaced = attributes.resource.namespaced;
        metadata::validate(object, namespaced, super::names::path_segment, problems);
    }
}

fn validate_update(attributes: &Attributes, old: &Value, new: &Value, problems: &mut Problems) {
    match attributes.resource.kind {
        "Pod" => pod::validate_update(attributes, old, new, problems),
        "Node" => node::validate_update(attributes, old, new, problems),
        "Lease" => lease::validate_update(old, new, problems),
        "Event" => event::validate_update(attributes, old, new, problems),
        "Secret" => config::validate_secret_update(old, new, problems),
        "ConfigMap" => config::validate_config_map_update(old, new, problems),
        "Namespace" => namespace::validate_update(attributes, old, new, problems),
        "Service" => service::validate_update(old, new, problems),
        "ServiceAccount" => service_account::validate_update(old, new, problems),
        "RuntimeClass" => runtime_class::validate_update(old, new, problems),
        #[cfg(feature = "tls")]
        "CertificateSigningRequest" => super::csr::validate_update(attributes, old, new, problems),
        "PersistentVolume" => persistent_volume::validate_update(old, new, problems),
        "PersistentVolumeClaim" => persistent_volume::validate_claim_update(old, new, problems),
        "StorageClass" => storage::validate_class_update(old, new, problems),
        "CSIDriver" => storage::validate_driver(new, problems),
        "CSINode" => storage::validate_node(new, problems),
        "ResourceClaim" => claim::validate_update(old, new, problems),
        "ResourceClaimTemplate" => claim::validate_template_update(old, new, problems),
        "DeviceClass" => claim::validate_class(new, problems),
        "ResourceSlice" => claim::validate_slice_update(old, new, problems),
        "VolumeAttachment" => storage::validate_attachment_update(old, new, problems),
        "ClusterTrustBundle" => pod_certificate::validate_bundle_update(old, new, problems),
        "PodCertificateRequest" => pod_certificate::validate_request_update(attributes, old, new, problems),
        _ => {}
    }
}

fn refuse(attributes: &Attributes, object: &Value, problems: Problems) -> Result<(), StatusError> {
    if problems.is_empty() {
        return Ok(());
    }
    let name = object["metadata"].text("name");
    Err(StatusError::invalid(
        attributes.resource,
        name,
        &problems.into_causes(),
    ))
}

/// The form in which it is stored and returned.
fn complete(attributes: &Attributes, mut object: Value) -> Value {
    if attributes.resource.kind == "Pod" {
        pod::complete(&mut object);
    }
    schema::normalize(attributes.resource, &mut object);
    object
}

/// A `PUT` must name the object that its path names.
fn check_name(attributes: &Attributes, object: &Value) -> Result<(), StatusError> {
    let (given, wanted) = (object["metadata"].text("name"), attributes.name.as_str());
    if given.is_empty() {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != wanted {
        return Err(StatusError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({wanted})"
        )));
    }
    let (given, wanted) = (
        object["metadata"].text("namespace"),
        attributes.namespace.as_str(),
    );
    if attributes.resource.namespaced && !given.is_empty() && given != wanted {
        return Err(StatusError::bad_request(format!(
            "the namespace of the object ({given}) does not match the namespace on the request ({wanted})"
        )));
    }
    Ok(())
}

/// The UID in a `PUT` is a precondition.
fn check_uid(attributes: &Attributes, old: &Value, new: &Value) -> Result<(), StatusError> {
    let (wanted, found) = (new["metadata"].text("uid"), old["metadata"].text("uid"));
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    let resource = attributes.resource;
    let mut key = vec!["/registry", resource.plural];
    if resource.namespaced {
        key.push(&attributes.namespace);
    }
    key.push(&attributes.name);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         UID in precondition: {wanted}, UID in object meta: {found}",
        key.join("/")
    );
    Err(StatusError::conflict(resource, &attributes.name, &why))
}

fn check_version(attributes: &Attributes, old: &Value, new: &mut Value) -> Result<(), StatusError> {
    let resource = attributes.resource;
    let given = new["metadata"].text("resourceVersion");
    if matches!(given, "" | "0") {
        if matches!(resource.kind, "Lease" | "RuntimeClass") {
            let cause = Cause {
                reason: "FieldValueInvalid",
                field: "metadata.resourceVersion".into(),
                message: "Invalid value: 0: must be specified for an update".into(),
            };
            return Err(StatusError::invalid(resource, &attributes.name, &[cause]));
        }
    } else if given != old["metadata"].text("resourceVersion") {
        return Err(StatusError::conflict(resource, &attributes.name, OPTIMISTIC_LOCK));
    }
    new["metadata"]["resourceVersion"] = json!(old["metadata"].text("resourceVersion"));
    Ok(())
}
