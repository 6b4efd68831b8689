//! Environment variables and their sources.

use serde_json::Value;

use super::super::super::names;
use super::super::super::problems::{Field, Problems};
use super::super::super::value::Fields;

const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: [&str; 13] = [
    "1", "1E", "1Ei", "1G", "1Gi", "1k", "1Ki", "1M", "1Mi", "1P", "1Pi", "1T", "1Ti",
];
const BYTE_WORDS: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
const KEY_REFERENCES: [&str; 5] = [
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];

pub(super) fn validate(container: &Value, field: &Field, problems: &mut Problems) {
    for (index, variable) in container.list("env").iter().enumerate() {
        let field = field.child("env").index(index);
        match variable.text("name") {
            "" => problems.required(&field.child("name"), ""),
            name => problems.unless_formed(&field.child("name"), name, names::env_var_name),
        }
        validate_source(variable, &field.child("valueFrom"), problems);
    }
    let field = field.child("envFrom");
    for (index, from) in container.list("envFrom").iter().enumerate() {
        let at = field.index(index);
        if !from.text("prefix").is_empty() {
            problems.unless_formed(&at.child("prefix"), from.text("prefix"), names::env_var_name);
        }
        let mut sources = 0;
        for key in ["configMapRef", "secretRef"] {
            let Some(reference) = from.field(key) else {
                continue;
            };
            sources += 1;
            let at = at.child(key).child("name");
            match reference.text("name") {
                "" => problems.required(&at, ""),
                name => problems.unless_formed(&at, name, names::dns_subdomain),
            }
        }
        match sources {
            0 => problems.invalid(&field, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => problems.invalid(&field, "", "may not have more than one field specified at a time"),
        }
    }
}

fn validate_source(variable: &Value, field: &Field, problems: &mut Problems) {
    let Some(from) = variable.field("valueFrom") else {
        return;
    };
    if let Some(selector) = from.field("fieldRef") {
        validate_field(selector, &FIELDS, &field.child("fieldRef"), problems);
    }
    if let Some(selector) = from.field("resourceFieldRef") {
        validate_resource(selector, false, &field.child("resourceFieldRef"), problems);
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(selector) = from.field(key) {
            let field = field.child(key);
            problems.unless_formed(&field.child("name"), selector.text("name"), names::dns_subdomain);
            match selector.text("key") {
                "" => problems.required(&field.child("key"), ""),
                key => problems.unless_formed(&field.child("key"), key, names::config_map_key),
            }
        }
    }
    if let Some(selector) = from.field("fileKeyRef") {
        validate_file_key(selector, &field.child("fileKeyRef"), problems);
    }
    match KEY_REFERENCES.iter().filter(|key| from.has(key)).count() {
        0 => {
            let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                       `fileKeyRef`";
            problems.invalid(field, "", why);
        }
        _ if !variable.text("value").is_empty() => {
            problems.invalid(field, "", "may not be specified when `value` is not empty");
        }
        1 => {}
        _ => problems.invalid(field, "", "may not have more than one field specified at a time"),
    }
}

/// A reference to a field of the pod, in a variable or a file.
pub(super) fn validate_field(selector: &Value, fields: &[&str], field: &Field, problems: &mut Problems) {
    let path = selector.text("fieldPath");
    let subscript = path
        .split_once("['")
        .and_then(|(path, rest)| Some((path, rest.strip_suffix("']")?)));
    match subscript {
        _ if path.is_empty() => problems.required(&field.child("fieldPath"), ""),
        _ if selector.text("apiVersion") != "v1" => {
            let why = format!(
                "error converting fieldPath: unsupported pod version: {}",
                selector.text("apiVersion")
            );
            problems.invalid(&field.child("fieldPath"), path, &why);
        }
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            problems.unless_formed(field, &key, names::qualified_name);
        }
        Some(("metadata.labels", key)) => problems.unless_formed(field, key, names::qualified_name),
        Some((path, _)) => {
            let why = format!("error converting fieldPath: field label does not support subscript: {path}");
            problems.invalid(&field.child("fieldPath"), selector.text("fieldPath"), &why);
        }
        None if is_downward(path) => problems.unless_one_of(&field.child("fieldPath"), path, fields),
        None => {
            let why = format!("error converting fieldPath: field label not supported: {path}");
            problems.invalid(&field.child("fieldPath"), path, &why);
        }
    }
}

/// `ConvertDownwardAPIFieldLabel`: the fields that both variables and files may refer to.
fn is_downward(path: &str) -> bool {
    FIELDS.contains(&path)
        || matches!(
            path,
            "metadata.annotations"
                | "metadata.labels"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "status.phase"
        )
}

/// A reference to a container's resource, in a variable or a file.
pub(super) fn validate_resource(selector: &Value, named: bool, field: &Field, problems: &mut Problems) {
    let resource = selector.text("resource");
    let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if named && selector.text("containerName").is_empty() {
        problems.required(&field.child("containerName"), "");
    } else if resource.is_empty() {
        problems.required(&field.child("resource"), "");
    } else if !huge {
        problems.unless_one_of(&field.child("resource"), resource, &RESOURCES);
    }
    let divisor = selector.text("divisor");
    if matches!(divisor, "" | "0") {
        return;
    }
    let (supported, words, what): (&[&str], _, _) = match resource {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "1m and 1", "cpu"),
        "limits.memory" | "requests.memory" => (&BYTE_DIVISORS, BYTE_WORDS, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (&BYTE_DIVISORS, BYTE_WORDS, "local ephemeral storage")
        }
        _ if huge => (&BYTE_DIVISORS, BYTE_WORDS, "hugepages"),
        _ => return,
    };
    if !supported.contains(&divisor) {
        let why = format!("only divisor's values {words} are supported with the {what} resource");
        problems.invalid(&field.child("divisor"), resource, &why);
    }
}

fn validate_file_key(selector: &Value, field: &Field, problems: &mut Problems) {
    match selector.text("key") {
        "" => problems.required(&field.child("key"), ""),
        key => problems.unless_formed(&field.child("key"), key, names::env_var_name),
    }
    if selector.text("volumeName").is_empty() {
        problems.required(&field.child("volumeName"), "");
    }
    match selector.text("path") {
        "" => problems.required(&field.child("path"), ""),
        path => problems.unless_formed(&field.child("path"), path, names::no_backsteps),
    }
}
