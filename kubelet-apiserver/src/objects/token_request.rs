//! `TokenRequest`: a token for a service account.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::super::request::{Attributes, View};
use super::super::resource::Resource;
use super::super::status_error::StatusError;
use super::super::tokens::{self, Grant};
use super::admission;
use super::metadata;
use super::value::Fields;

/// The expiration that the default token volume requests. Such a token lasts longer, and says when it should be
/// renewed (`WarnOnlyBoundTokenExpirationSeconds`).
const WARN_ONLY_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

/// Defaults of a request.
pub(super) fn set_defaults(request: &mut Value) {
    if !request["spec"].is_object() {
        request["spec"] = json!({});
    }
    request["spec"].default_value("expirationSeconds", 3600);
    request["spec"].default_value("audiences", json!([]));
}

/// Grants a token for `account`; returns the answer.
pub(super) fn grant(
    attributes: &Attributes,
    view: &dyn View,
    rng: &mut fastrand::Rng,
    account: &Value,
    mut request: Value,
) -> Result<Value, StatusError> {
    let meta = &account["metadata"];
    for key in ["name", "namespace"] {
        let given = request["metadata"].text(key).to_owned();
        if !given.is_empty() && given != meta.text(key) {
            let why = format!("must match the service account {key} if specified");
            let message = format!("Invalid value: {given:?}: {why}");
            return Err(invalid(&attributes.name, &format!("metadata.{key}"), &message));
        }
    }
    let (given, uid) = (request["metadata"].text("uid").to_owned(), meta.text("uid"));
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
        );
        return Err(conflict(
            "TokenRequest",
            "authentication.k8s.io",
            &attributes.name,
            &why,
        ));
    }
    // Mutating admission sees the request as sent.
    admission::post(attributes, view, &request)?;
    let sent = request["spec"].clone();
    if sent.list("audiences").is_empty() {
        request["spec"]["audiences"] = json!([tokens::ISSUER]);
    }
    request["metadata"] = json!({
        "name": meta["name"], "namespace": meta["namespace"], "uid": uid,
        "creationTimestamp": metadata::time(attributes.now),
        "managedFields": managed_fields(attributes, &sent),
    });
    let seconds = request["spec"].number("expirationSeconds").unwrap_or(0);
    let wrong = match seconds {
        ..600 => Some("may not specify a duration less than 10 minutes"),
        _ if seconds > 1 << 32 => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(why) = wrong {
        let message = format!("Invalid value: {seconds}: {why}");
        return Err(invalid("", "spec.expirationSeconds", &message));
    }
    let bound = bound_object(attributes, view, &request["spec"]["boundObjectRef"])?;
    let for_server = request["spec"]["audiences"] == json!([tokens::ISSUER]);
    let to_pod = bound.first().is_some_and(|(kind, ..)| *kind == "pod");
    let extended = seconds == WARN_ONLY_SECONDS && to_pod && for_server;
    let grant = Grant {
        account,
        audiences: &request["spec"]["audiences"],
        bound,
        issued: attributes.now,
        seconds: if extended { EXTENDED_SECONDS } else { seconds },
        warn_after: extended.then_some(seconds),
        id: metadata::uid(rng),
    };
    let token = tokens::issue(&grant, view);
    request["spec"].default_value("boundObjectRef", Value::Null);
    request["kind"] = json!("TokenRequest");
    request["apiVersion"] = json!("authentication.k8s.io/v1");
    request["status"] = json!({
        "token": token,
        "expirationTimestamp": metadata::time(attributes.now + SignedDuration::from_secs(seconds)),
    });
    Ok(request)
}

/// The account and the request.
fn managed_fields(attributes: &Attributes, sent: &Value) -> Value {
    let mut fields = json!({"f:expirationSeconds": {}});
    if !sent.list("audiences").is_empty() {
        fields["f:audiences"] = json!({});
    }
    if sent.has("boundObjectRef") {
        fields["f:boundObjectRef"] = json!({".": {}});
        for (key, _) in sent.entries("boundObjectRef") {
            fields["f:boundObjectRef"][format!("f:{key}")] = json!({});
        }
    }
    json!([{
        "manager": attributes.field_manager, "operation": "Update", "subresource": "token",
        "apiVersion": "authentication.k8s.io/v1", "time": metadata::time(attributes.now),
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields},
    }])
}

/// The object that the token is bound to: a pod (the token then also names its node), a secret or a node.
fn bound_object(
    attributes: &Attributes,
    view: &dyn View,
    reference: &Value,
) -> Result<Vec<(&'static str, String, String)>, StatusError> {
    if reference.is_null() {
        return Ok(Vec::new());
    }
    let (kind, name) = (reference.text("kind"), reference.text("name"));
    let version = reference.text("apiVersion");
    let (key, plural, namespace) = match kind {
        "Pod" if !version.contains('/') => ("pod", "pods", attributes.namespace.as_str()),
        "Secret" if !version.contains('/') => ("secret", "secrets", attributes.namespace.as_str()),
        "Node" if !version.contains('/') => ("node", "nodes", ""),
        _ => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(StatusError::bad_request(why));
        }
    };
    let Some(resource) = Resource::find("", "v1", plural) else {
        return Ok(Vec::new());
    };
    let object = view
        .get(resource, namespace, name)
        .ok_or_else(|| StatusError::not_found(resource, name))?;
    if key == "pod" && object["spec"].text("serviceAccountName") != attributes.name {
        let why = format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            attributes.name
        );
        return Err(StatusError::bad_request(why));
    }
    let uid = object["metadata"].text("uid").to_owned();
    let given = reference.text("uid");
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(conflict(kind, "", name, &why));
    }
    let mut bound = vec![(key, name.to_owned(), uid)];
    let node = object["spec"].text("nodeName");
    if key == "pod" && !node.is_empty() {
        let found = Resource::find("", "v1", "nodes").and_then(|nodes| view.get(nodes, "", node));
        let uid = found.map(|node| node["metadata"].text("uid").to_owned());
        bound.push(("node", node.to_owned(), uid.unwrap_or_default()));
    }
    Ok(bound)
}

fn invalid(name: &str, field: &str, message: &str) -> StatusError {
    let cause = json!({"reason": "FieldValueInvalid", "message": message, "field": field});
    let mut details = json!({"group": "authentication.k8s.io", "kind": "TokenRequest", "causes": [cause]});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    let message = format!("TokenRequest.authentication.k8s.io {name:?} is invalid: {field}: {message}");
    StatusError::new(422, "Invalid", message).with_details(details)
}

/// An error about a kind, where others are about a resource.
fn conflict(kind: &str, group: &str, name: &str, why: &str) -> StatusError {
    let mut details = json!({"kind": kind, "name": name});
    let mut qualified = kind.to_owned();
    if !group.is_empty() {
        details["group"] = json!(group);
        qualified = format!("{kind}.{group}");
    }
    let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
    StatusError::new(409, "Conflict", message).with_details(details)
}
