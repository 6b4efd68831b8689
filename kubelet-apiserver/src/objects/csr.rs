//! Certificate signing requests.

use serde_json::{Value, json};

use super::super::certificates::request;
use super::super::request::Attributes;
use super::super::status_error::StatusError;
use super::problems::{Field, Problems};
use super::value::Fields;
use super::{metadata, names};

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// `CertificateSubjectRestriction`: no certificate makes its user a master.
pub(super) fn admit_create(attributes: &Attributes, csr: &Value) -> Result<(), StatusError> {
    let spec = &csr["spec"];
    if spec.text("signerName") != "kubernetes.io/kube-apiserver-client" {
        return Ok(());
    }
    let name = metadata::display_name(attributes, csr);
    let forbid = |why: &str| Err(StatusError::forbidden(attributes.resource, &name, why));
    match request::parse(spec.text("request")) {
        Err(why) => forbid(&format!("unable to parse csr: {why}")),
        Ok(parsed) if parsed.organizations.iter().any(|group| group == "system:masters") => forbid(
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
        ),
        Ok(_) => Ok(()),
    }
}

/// The user is the request's user, and the status is empty.
pub(super) fn prepare_create(attributes: &Attributes, csr: &mut Value) {
    for key in ["username", "uid", "groups", "extra"] {
        metadata::remove(csr, "/spec", key);
    }
    csr["spec"]["username"] = json!(attributes.user.name);
    csr["spec"]["groups"] = json!(attributes.user.groups);
    csr["status"] = json!({});
}

pub(super) fn prepare_update(attributes: &Attributes, old: &Value, new: &mut Value) {
    metadata::copy_field(old, new, "spec");
    let now = json!(metadata::time(attributes.now));
    match attributes.subresource {
        "status" => {
            for kind in ["Approved", "Denied"] {
                preserve(kind, old, new);
            }
            set_times(old, new, &now);
        }
        "approval" => {
            set_times(old, new, &now);
            let conditions = new["status"].list("conditions").to_vec();
            metadata::copy_field(old, new, "status");
            if !new["status"].is_object() {
                new["status"] = json!({});
            }
            if conditions.is_empty() {
                metadata::remove(new, "/status", "conditions");
            } else {
                new["status"]["conditions"] = Value::Array(conditions);
            }
        }
        _ => metadata::copy_field(old, new, "status"),
    }
}

pub(super) fn validate(csr: &Value, problems: &mut Problems) {
    metadata::validate(csr, false, |_| Vec::new(), problems);
    let (spec, field) = (&csr["spec"], Field::root("spec"));
    let text = spec.text("request");
    if let Err(why) = request::parse(text) {
        problems.invalid(&field.child("request"), text, &why);
    }
    let usages = spec.list("usages");
    if usages.is_empty() {
        problems.required(&field.child("usages"), "");
    }
    for (index, usage) in usages.iter().enumerate() {
        let field = field.child("usages").index(index);
        problems.unless_one_of(&field, usage.as_str().unwrap_or_default(), &USAGES);
    }
    for (index, usage) in usages.iter().enumerate() {
        if usages[..index].contains(usage) {
            problems.duplicate(&field.child("usages").index(index), usage.clone());
        }
    }
    match spec.text("signerName") {
        "kubernetes.io/legacy-unknown" => problems.invalid(
            &field.child("signerName"),
            "kubernetes.io/legacy-unknown",
            "the legacy signerName is not allowed via this API version",
        ),
        name => validate_signer_name(name, &field.child("signerName"), problems),
    }
    if let Some(seconds) = spec.number("expirationSeconds").filter(|seconds| *seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        problems.invalid(&field.child("expirationSeconds"), seconds, why);
    }
    validate_conditions(csr, problems);
}

pub(super) fn validate_update(attributes: &Attributes, old: &Value, new: &Value, problems: &mut Problems) {
    validate(new, problems);
    let field = Field::root("status").child("conditions");
    let of_kind = |csr: &Value, kind: &str| -> Vec<Value> {
        let conditions = csr["status"].list("conditions").iter();
        conditions
            .filter(|condition| condition.text("type") == kind)
            .cloned()
            .collect()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if of_kind(new, kind).len() < of_kind(old, kind).len() {
            let why = format!("updates may not remove a condition of type {kind:?}");
            problems.forbidden(&field, &why);
        }
    }
    if attributes.subresource != "approval" {
        for kind in ["Approved", "Denied"] {
            let (old, new) = (of_kind(old, kind), of_kind(new, kind));
            if new.len() > old.len() {
                let why = format!("updates may not add a condition of type {kind:?}");
                problems.forbidden(&field, &why);
            } else if new.len() == old.len() && new != old {
                let why = format!("updates may not modify a condition of type {kind:?}\n");
                problems.forbidden(&field, &why);
            }
        }
    }
    let certificate = |csr: &Value| csr["status"].text("certificate").to_owned();
    if certificate(old) != certificate(new) {
        let field = Field::root("status").child("certificate");
        if attributes.subresource != "status" {
            problems.forbidden(&field, "updates may not set certificate content");
        } else if !certificate(old).is_empty() {
            let why = "updates may not modify existing certificate content";
            problems.forbidden(&field, why);
        }
    }
    metadata::validate_update(new, old, problems);
}

/// `<domain>/<path>`.
fn validate_signer_name(name: &str, field: &Field, problems: &mut Problems) {
    if name.is_empty() {
        problems.required(field, "");
        return;
    }
    let Some((domain, path)) = name.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        problems.invalid(field, name, why);
        return;
    };
    let found = names::dns_subdomain(domain);
    for why in &found {
        problems.invalid(field, domain, &format!("validating label {domain:?}: {why}"));
    }
    if found.is_empty() && !domain.contains('.') {
        problems.invalid(
            field,
            domain,
            "should be a domain with at least two segments separated by dots",
        );
    }
    for why in names::dns_subdomain(path) {
        problems.invalid(field, path, &why);
    }
}

fn validate_conditions(csr: &Value, problems: &mut Problems) {
    let field = Field::root("status").child("conditions");
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in csr["status"].list("conditions").iter().enumerate() {
        let (at, kind) = (field.index(index), condition.text("type"));
        if kind.is_empty() {
            problems.required(&at.child("type"), "");
        }
        let supported: &[&str] = if matches!(kind, "Approved" | "Denied" | "Failed") {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        match condition.text("status") {
            "" => problems.required(&at.child("status"), ""),
            status => problems.unless_one_of(&at.child("status"), status, supported),
        }
        let other = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(&other) {
            let why = "Approved and Denied conditions are mutually exclusive";
            problems.invalid(&field, kind, why);
        }
        if seen.contains(&kind) {
            problems.duplicate(&at.child("type"), kind);
        }
        seen.push(kind);
    }
}

/// Conditions of this type keep their contents, if their number stays the same.
fn preserve(kind: &str, old: &Value, new: &mut Value) {
    let known: Vec<Value> = old["status"]
        .list("conditions")
        .iter()
        .filter(|condition| condition.text("type") == kind)
        .cloned()
        .collect();
    let found: Vec<&mut Value> = new["status"]
        .list_mut("conditions")
        .iter_mut()
        .filter(|condition| condition.text("type") == kind)
        .collect();
    if found.len() == known.len() {
        for (found, known) in found.into_iter().zip(known) {
            *found = known;
        }
    }
}

fn set_times(old: &Value, new: &mut Value, now: &Value) {
    if !new["status"].is_object() {
        return;
    }
    for condition in new["status"].list_mut("conditions") {
        condition.default_value("lastUpdateTime", now.clone());
        if condition.has("lastTransitionTime") {
            continue;
        }
        let since = old["status"].list("conditions").iter().find(|old| {
            old["type"] == condition["type"]
                && old["status"] == condition["status"]
                && old.has("lastTransitionTime")
        });
        let since = since.map_or(now, |old| &old["lastTransitionTime"]);
        condition["lastTransitionTime"] = since.clone();
    }
}
