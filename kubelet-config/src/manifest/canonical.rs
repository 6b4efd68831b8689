//! A document brought to the form in which the API writes it, so that two ways to write one thing give one
//! pod: zero values left out, quantities in canonical form, whole numbers without a point.

use kubelet_core::quantity::WrittenAmount;
use serde_json::{Map, Value};

use crate::{Error, Result};

/// Fields that are maps of strings. `null` as a value is the empty string.
const STRING_MAPS: [&str; 7] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "options",
    "volumeAttributes",
    "userAnnotations",
];
/// Fields that are lists of strings. `null` as an item is the empty string.
const STRING_LISTS: [&str; 17] = [
    "accessModes",
    "add",
    "args",
    "command",
    "drop",
    "finalizers",
    "hostnames",
    "matchLabelKeys",
    "mismatchLabelKeys",
    "monitors",
    "nameservers",
    "namespaces",
    "portals",
    "searches",
    "targetWWNs",
    "values",
    "wwids",
];
/// The one field that is a list of numbers. `null` as an item is 0.
const NUMBER_LIST: &str = "supplementalGroups";
/// A list that the API writes even if it is empty.
const REQUIRED_LIST: &str = "sources";
/// Fields that are maps of quantities.
const RESOURCE_LISTS: [&str; 4] = ["limits", "requests", "overhead", "allocatedResources"];
/// Fields that are quantities.
const QUANTITIES: [&str; 2] = ["sizeLimit", "divisor"];
/// Booleans whose `false` the API does not write.
const PLAIN_BOOLEANS: [&str; 10] = [
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "stdin",
    "stdinOnce",
    "tty",
    "readOnly",
    "chapAuthDiscovery",
    "chapAuthSession",
    "sslEnabled",
];
/// Numbers whose 0 the API does not write.
const PLAIN_NUMBERS: [&str; 10] = [
    "hostPort",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "partition",
    "signal",
    "generation",
    "observedGeneration",
];
/// Strings that may be unset or empty, which are two things. Each with the field that holds it, where another
/// field has a string of that name for which the two are one.
const OPTIONAL_STRINGS: [(Option<&str>, &str); 44] = [
    (Some("azureDisk"), "fsType"),
    (Some("azureDisk"), "kind"),
    (Some("clusterTrustBundle"), "name"),
    (Some("containers"), "restartPolicy"),
    (Some("csi"), "fsType"),
    (Some("dataSourceRef"), "namespace"),
    (Some("ephemeralContainers"), "restartPolicy"),
    (Some("hostPath"), "type"),
    (Some("initContainers"), "restartPolicy"),
    (Some("options"), "value"),
    (Some("resources"), "message"),
    (None, "apiGroup"),
    (None, "cachingMode"),
    (None, "fsGroupChangePolicy"),
    (None, "gmsaCredentialSpec"),
    (None, "gmsaCredentialSpecName"),
    (None, "hostnameOverride"),
    (None, "initiatorName"),
    (None, "localhostProfile"),
    (None, "mountPropagation"),
    (None, "nodeAffinityPolicy"),
    (None, "nodeTaintsPolicy"),
    (None, "podGroupName"),
    (None, "preemptionPolicy"),
    (None, "procMount"),
    (None, "recursiveReadOnly"),
    (None, "resourceClaimTemplateName"),
    (None, "runAsUserName"),
    (None, "runtimeClassName"),
    (None, "seLinuxChangePolicy"),
    (None, "service"),
    (None, "stopSignal"),
    (None, "storageClassName"),
    (None, "supplementalGroupsPolicy"),
    (None, "volumeAttributesClassName"),
    (None, "volumeMode"),
    // Times: an empty one is an error.
    (None, "creationTimestamp"),
    (None, "deletionTimestamp"),
    (None, "finishedAt"),
    (None, "lastProbeTime"),
    (None, "lastTransitionTime"),
    (None, "startedAt"),
    (None, "startTime"),
    (None, "time"),
];

/// Brings the document to its canonical form. A quantity that is none stays as it is: its field may be unknown, and then
/// it does not matter. [`check_quantities`] refuses it in a field of the pod.
pub(super) fn canonicalize(document: &mut Value) {
    canonicalize_value("", document);
}

/// Writes numbers with a point but no fraction as the whole numbers they are. They are the same in YAML; in JSON a whole
/// number has no point.
pub(super) fn write_whole_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers),
        Value::Number(number) => {
            if let Some(whole) = whole(number) {
                *value = whole;
            }
        }
        _ => {}
    }
}

/// Refuses a pod with a quantity that is none.
///
/// # Errors
///
/// [`Error::Parse`] with the first one.
pub(super) fn check_quantities(pod: &Value) -> Result<()> {
    match pod {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::Object(_) if STRING_MAPS.contains(&key.as_str()) => {}
                    Value::Object(amounts) if RESOURCE_LISTS.contains(&key.as_str()) => amounts
                        .iter()
                        .try_for_each(|(resource, amount)| check_quantity(resource, amount))?,
                    amount if QUANTITIES.contains(&key.as_str()) => check_quantity(key, amount)?,
                    value => check_quantities(value)?,
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(check_quantities),
        _ => Ok(()),
    }
}

fn check_quantity(field: &str, value: &Value) -> Result<()> {
    let text = value.as_str().unwrap_or_default();
    match amount(text) {
        Some(_) => Ok(()),
        None => Err(Error::Parse {
            message: format!("{field}: {text:?} is not a quantity"),
        }),
    }
}

/// `key` is the field that holds the value, itself or in a list.
fn canonicalize_value(key: &str, value: &mut Value) {
    match value {
        Value::Object(fields) => canonicalize_fields(key, fields),
        Value::Array(items) => {
            for item in items {
                if item.is_null() {
                    *item = empty_item(key);
                }
                canonicalize_value(key, item);
            }
        }
        _ => {}
    }
}

fn canonicalize_fields(parent: &str, fields: &mut Map<String, Value>) {
    for (key, value) in fields.iter_mut() {
        let key = key.as_str();
        match value {
            Value::Object(strings) if STRING_MAPS.contains(&key) => {
                for string in strings.values_mut().filter(|string| string.is_null()) {
                    *string = Value::String(String::new());
                }
            }
            Value::Object(amounts) if RESOURCE_LISTS.contains(&key) => {
                for amount in amounts.values_mut() {
                    *amount = quantity(amount, WrittenAmount::round_up_to_milli);
                }
            }
            amount if QUANTITIES.contains(&key) && !amount.is_null() => {
                *amount = quantity(amount, |quantity| quantity);
            }
            value => canonicalize_value(key, value),
        }
    }
    fields.retain(|key, value| !is_zero(parent, key, value));
}

/// What `null` stands for in the list of this field.
fn empty_item(list: &str) -> Value {
    if STRING_LISTS.contains(&list) {
        Value::String(String::new())
    } else if list == NUMBER_LIST {
        Value::from(0)
    } else {
        Value::Object(Map::new())
    }
}

fn is_zero(parent: &str, key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value && PLAIN_BOOLEANS.contains(&key),
        Value::Number(value) => value.as_i64() == Some(0) && PLAIN_NUMBERS.contains(&key),
        // No quantity is empty.
        Value::String(_) if QUANTITIES.contains(&key) => false,
        Value::String(value) => value.is_empty() && !is_optional(parent, key),
        Value::Array(value) => value.is_empty() && key != REQUIRED_LIST,
        Value::Object(value) => {
            value.is_empty() && (STRING_MAPS.contains(&key) || RESOURCE_LISTS.contains(&key))
        }
    }
}

fn is_optional(parent: &str, key: &str) -> bool {
    OPTIONAL_STRINGS
        .iter()
        .any(|&(owner, name)| name == key && owner.is_none_or(|owner| owner == parent))
}

/// Reads a quantity, as the API does without the white space around it. `None` if it is none.
pub(super) fn amount(text: &str) -> Option<WrittenAmount> {
    text.trim().parse().ok()
}

fn quantity(value: &Value, round: impl FnOnce(WrittenAmount) -> WrittenAmount) -> Value {
    let text = match value {
        Value::Null => "0".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match amount(&text) {
        Some(amount) => Value::String(round(amount).to_string()),
        None => Value::String(text),
    }
}

/// A number with a point but no fraction, as the whole number it is.
fn whole(number: &serde_json::Number) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within bounds")]
    (float.fract() == 0.0 && float.abs() < EXACT).then(|| Value::from(float as i64))
}
