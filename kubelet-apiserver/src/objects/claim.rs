//! Resource claims, their templates, device classes and resource slices.

use serde_json::Value;

use super::problems::{Field, Problems};
use super::value::Fields;
use super::{metadata, names};

/// The most pods that a claim can be reserved for (`ResourceClaimReservedForMaxSize`).
const MOST_CONSUMERS: usize = 256;

/// Each request wants a number of devices; by default one.
pub(super) fn set_defaults(spec: &mut Value) {
    let requests = spec
        .pointer_mut("/devices/requests")
        .and_then(Value::as_array_mut);
    for request in requests.into_iter().flatten() {
        if let Some(exactly) = request.get_mut("exactly").filter(|exactly| exactly.is_object()) {
            set_count(exactly);
        }
        let alternatives = request.get_mut("firstAvailable").and_then(Value::as_array_mut);
        alternatives.into_iter().flatten().for_each(set_count);
    }
}

fn set_count(request: &mut Value) {
    request.default_text("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" && request.number("count").unwrap_or_default() == 0 {
        request["count"] = 1.into();
    }
}

pub(super) fn validate(claim: &Value, problems: &mut Problems) {
    metadata::validate(claim, true, names::dns_subdomain, problems);
    validate_spec(&claim["spec"], &Field::root("spec"), problems);
}

pub(super) fn validate_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    problems.unless_same(&Field::root("spec"), &new["spec"], &old["spec"]);
    let (status, field) = (&new["status"], Field::root("status"));
    let consumers = status.list("reservedFor").len();
    if consumers > 0 && !status.has("allocation") {
        let why = "may not be specified when `allocated` is not set";
        problems.forbidden(&field.child("reservedFor"), why);
    }
    if consumers > MOST_CONSUMERS {
        let why = format!("must have at most {MOST_CONSUMERS} items");
        problems.invalid(&field.child("reservedFor"), consumers, &why);
    }
    if old["status"].has("allocation") && status.has("allocation") {
        let field = field.child("allocation");
        problems.unless_same(&field, &status["allocation"], &old["status"]["allocation"]);
    }
}

pub(super) fn validate_template(template: &Value, problems: &mut Problems) {
    metadata::validate(template, true, names::dns_subdomain, problems);
    let field = Field::root("spec").child("spec");
    validate_spec(&template["spec"]["spec"], &field, problems);
}

pub(super) fn validate_template_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    problems.unless_same(&Field::root("spec"), &new["spec"], &old["spec"]);
}

pub(super) fn validate_class(class: &Value, problems: &mut Problems) {
    metadata::validate(class, false, names::dns_subdomain, problems);
}

pub(super) fn validate_slice(slice: &Value, problems: &mut Problems) {
    metadata::validate(slice, false, names::dns_subdomain, problems);
    let (spec, field) = (&slice["spec"], Field::root("spec"));
    if spec.text("driver").is_empty() {
        problems.required(&field.child("driver"), "");
    }
    if spec["pool"].text("name").is_empty() {
        problems.required(&field.child("pool").child("name"), "");
    }
}

pub(super) fn validate_slice_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    validate_slice(new, problems);
    let field = Field::root("spec");
    for key in ["driver", "nodeName"] {
        problems.unless_same(&field.child(key), &new["spec"][key], &old["spec"][key]);
    }
}

fn validate_spec(spec: &Value, field: &Field, problems: &mut Problems) {
    let field = field.child("devices").child("requests");
    for (index, request) in spec["devices"].list("requests").iter().enumerate() {
        let field = field.index(index);
        if request.text("name").is_empty() {
            problems.required(&field.child("name"), "");
        }
        let exactly = &request["exactly"];
        if !request.has("exactly") && request.list("firstAvailable").is_empty() {
            let why = "exactly one of `exactly` or `firstAvailable` is required";
            problems.required(&field, why);
        }
        if request.has("exactly") && exactly.text("deviceClassName").is_empty() {
            problems.required(&field.child("exactly").child("deviceClassName"), "");
        }
    }
}
