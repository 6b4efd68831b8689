//! Trust bundles of the cluster, and requests for the certificates of pods.

use serde_json::Value;

use super::super::request::Attributes;
use super::problems::{Field, Problems};
use super::value::Fields;
use super::{metadata, names};

/// How a request ends, sorted as the API server sorts it.
const OUTCOMES: [&str; 3] = ["Denied", "Failed", "Issued"];

pub(super) fn validate_bundle(bundle: &Value, problems: &mut Problems) {
    metadata::validate(bundle, false, |_| Vec::new(), problems);
    let (spec, field) = (&bundle["spec"], Field::root("spec"));
    let (name, signer) = (bundle["metadata"].text("name"), spec.text("signerName"));
    let prefix = format!("{}:", signer.replace('/', ":"));
    if signer.is_empty() {
        problems.unless_formed(&Field::root("metadata").child("name"), name, names::dns_subdomain);
    } else if !name.starts_with(&prefix) {
        let why = format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}");
        problems.invalid(&Field::root("metadata").child("name"), name, &why);
    }
    if !spec.text("trustBundle").contains("-----BEGIN CERTIFICATE-----") {
        problems.invalid(
            &field.child("trustBundle"),
            "<value omitted>",
            "at least one trust anchor must be provided",
        );
    }
}

pub(super) fn validate_bundle_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    validate_bundle(new, problems);
    let field = Field::root("spec").child("signerName");
    problems.unless_same(&field, &new["spec"]["signerName"], &old["spec"]["signerName"]);
}

pub(super) fn validate_request(request: &Value, problems: &mut Problems) {
    metadata::validate(request, true, names::dns_subdomain, problems);
    let (spec, field) = (&request["spec"], Field::root("spec"));
    for key in [
        "signerName",
        "podName",
        "podUID",
        "serviceAccountName",
        "serviceAccountUID",
        "nodeName",
        "nodeUID",
        "stubPKCS10Request",
    ] {
        if spec.text(key).is_empty() {
            problems.required(&field.child(key), "");
        }
    }
    // An hour at least (`MinMaxExpirationSeconds`).
    let least = 3600;
    if let Some(seconds) = spec.number("maxExpirationSeconds").filter(|it| *it < least) {
        let why = format!("must be in the range [{least}, 7862400]");
        problems.invalid(&field.child("maxExpirationSeconds"), seconds, &why);
    }
}

pub(super) fn validate_request_update(
    attributes: &Attributes,
    old: &Value,
    new: &Value,
    problems: &mut Problems,
) {
    metadata::validate_update(new, old, problems);
    problems.unless_same(&Field::root("spec"), &new["spec"], &old["spec"]);
    if attributes.subresource != "status" {
        return;
    }
    let field = Field::root("status").child("conditions");
    let conditions = new["status"].list("conditions");
    for (index, condition) in conditions.iter().enumerate() {
        let kind = condition.text("type");
        problems.unless_one_of(&field.index(index).child("type"), kind, &OUTCOMES);
    }
    if conditions.len() > 1 {
        let why = r#"There may be at most one condition with type "Issued", "Denied", or "Failed""#;
        problems.invalid(&field, new["status"]["conditions"].clone(), why);
    }
}
