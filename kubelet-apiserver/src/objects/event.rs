//! Events: one kind with different fields in two API groups.

use serde_json::{Value, json};

use super::super::request::Attributes;
use super::super::resource::Resource;
use super::problems::{Field, Problems};
use super::value::Fields;
use super::{metadata, names};

/// The fields of the core group and those of `events.k8s.io`.
const TWINS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];
/// Fields that the core group always writes.
const ALWAYS_IN_CORE: [&str; 4] = [
    "firstTimestamp",
    "lastTimestamp",
    "reportingComponent",
    "reportingInstance",
];

/// Converts an event from one group to the other.
pub(crate) fn convert(event: &mut Value, to: &Resource) {
    let version = to.api_version();
    if event.text("apiVersion") == version {
        return;
    }
    event["apiVersion"] = json!(version);
    let to_core = to.group.is_empty();
    let fields = event.fields_mut();
    for (core, new) in TWINS {
        let (from, to) = if to_core { (new, core) } else { (core, new) };
        if let Some(value) = fields.remove(from).filter(|value| !is_zero(value)) {
            fields.insert(to.into(), value);
        }
    }
    fields.entry("eventTime").or_insert(Value::Null);
    if to_core {
        fields.entry("involvedObject").or_insert_with(|| json!({}));
        fields.entry("source").or_insert_with(|| json!({}));
        for key in ALWAYS_IN_CORE {
            let zero = if key.ends_with("Timestamp") {
                Value::Null
            } else {
                json!("")
            };
            fields.entry(key).or_insert(zero);
        }
    } else {
        for key in ["deprecatedSource", "regarding"] {
            fields.entry(key).or_insert_with(|| json!({}));
        }
        for key in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
            fields.entry(key).or_insert(Value::Null);
        }
        if fields.get("reportingInstance").is_some_and(is_zero) {
            fields.remove("reportingInstance");
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    }
}

/// An event with the core group's fields.
fn core(event: &Value) -> Value {
    let mut event = event.clone();
    if let Some(core) = Resource::find("", "v1", "events") {
        convert(&mut event, core);
    }
    event
}

/// `ValidateEventCreate`.
pub(super) fn validate(attributes: &Attributes, event: &Value, problems: &mut Problems) {
    let event = core(event);
    validate_legacy(attributes, &event, problems);
    if attributes.resource.group.is_empty() {
        return;
    }
    metadata::validate(&event, true, names::dns_subdomain, problems);
    validate_series(&event, problems);
    if !event.has("eventTime") {
        problems.required(&Field::root("eventTime"), "");
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        problems.invalid(&Field::root("type"), "", &format!("has invalid value: {kind}"));
    }
    for key in ["firstTimestamp", "lastTimestamp", "count"] {
        if !is_zero(&event[key]) {
            problems.invalid(&Field::root(key), "", "needs to be unset");
        }
    }
    let source = &event["source"];
    if !source.text("component").is_empty() || !source.text("host").is_empty() {
        problems.invalid(&Field::root("source"), "", "needs to be unset");
    }
}

/// `ValidateEventUpdate`.
pub(super) fn validate_update(attributes: &Attributes, old: &Value, new: &Value, problems: &mut Problems) {
    let (old, new) = (core(old), core(new));
    validate_legacy(attributes, &new, problems);
    if attributes.resource.group.is_empty() {
        return;
    }
    metadata::validate_update(&new, &old, problems);
    if old["series"] != new["series"] {
        validate_series(&new, problems);
    }
    for (key, name) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        problems.unless_same(&Field::root(name), &new[key], &old[key]);
    }
}

fn validate_series(event: &Value, problems: &mut Problems) {
    let Some(series) = event.field("series") else {
        return;
    };
    if series.number("count").unwrap_or(0) < 2 {
        problems.invalid(&Field::root("series.count"), "", "should be at least 2");
    }
    if !series.has("lastObservedTime") {
        problems.required(&Field::root("series.lastObservedTime"), "");
    }
}

/// `legacyValidateEvent`: the rules for both groups.
fn validate_legacy(attributes: &Attributes, event: &Value, problems: &mut Problems) {
    let namespace = event["metadata"].text("namespace");
    let involved = event["involvedObject"].text("namespace");
    let at = Field::root("involvedObject").child("namespace");
    let why = "does not match event.namespace";
    if !event.has("eventTime") {
        let fits = if involved.is_empty() {
            namespace == "default"
        } else {
            namespace == involved
        };
        if !fits {
            problems.invalid(&at, involved, why);
        }
    } else {
        if involved.is_empty() && !matches!(namespace, "default" | "kube-system") {
            problems.invalid(&at, involved, why);
        }
        validate_reporter(attributes, event, problems);
    }
    problems.unless_formed(&Field::root("namespace"), namespace, names::dns_subdomain);
}

fn validate_reporter(attributes: &Attributes, event: &Value, problems: &mut Problems) {
    let field = Field::root(if attributes.resource.group.is_empty() {
        "reportingComponent"
    } else {
        "reportingController"
    });
    let reporter = event.text("reportingComponent");
    if reporter.is_empty() {
        problems.required(&field, "");
    }
    problems.unless_formed(&field, reporter, names::qualified_name);
    for (key, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let (field, text) = (Field::root(key), event.text(key));
        if text.is_empty() {
            problems.required(&field, "");
        }
        if text.len() > most {
            problems.invalid(&field, "", &format!("can have at most {most} characters"));
        }
    }
    if event.text("message").len() > 1024 {
        problems.invalid(&Field::root("message"), "", "can have at most 1024 characters");
    }
}
