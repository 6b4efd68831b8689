//! Probes and lifecycle hooks.

use serde_json::Value;

use super::super::super::names;
use super::super::super::problems::{Field, Problems};
use super::super::super::value::Fields;

/// Probes and hooks of a container that may have them.
pub(super) fn validate(container: &Value, spec: &Value, field: &Field, problems: &mut Problems) {
    let grace = spec.number("terminationGracePeriodSeconds");
    if let Some(lifecycle) = container.field("lifecycle") {
        let field = field.child("lifecycle");
        for key in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.field(key) {
                validate_handler(hook, grace, &field.child(key), problems);
            }
        }
        if lifecycle.has("stopSignal") && !spec.has("os") {
            let why = "may not be set for containers with empty `spec.os.name`";
            problems.forbidden(&field.child("stopSignal"), why);
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.field(key) {
            validate_probe(key, probe, grace, &field.child(key), problems);
        }
    }
}

fn validate_probe(name: &str, probe: &Value, grace: Option<i64>, field: &Field, problems: &mut Problems) {
    validate_handler(probe, grace, field, problems);
    for key in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        problems.if_negative(&field.child(key), probe.number(key).unwrap_or(0));
    }
    let readiness = name == "readinessProbe";
    if let Some(seconds) = probe.number("terminationGracePeriodSeconds") {
        let field = field.child("terminationGracePeriodSeconds");
        if seconds <= 0 {
            problems.invalid(&field, seconds, "must be greater than 0");
        }
        if readiness {
            problems.invalid(&field, seconds, "must not be set for readinessProbes");
        }
    }
    let times = probe.number("successThreshold").unwrap_or(0);
    if !readiness && times != 1 {
        problems.invalid(&field.child("successThreshold"), times, "must be 1");
    }
}

/// `validateHandler`: the first one is validated; there must be no other.
fn validate_handler(handler: &Value, grace: Option<i64>, field: &Field, problems: &mut Problems) {
    let mut found = false;
    for key in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = handler.field(key) else {
            continue;
        };
        let field = field.child(key);
        if found {
            problems.forbidden(&field, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match key {
            "exec" if action.list("command").is_empty() => problems.required(&field.child("command"), ""),
            "httpGet" => validate_http_get(action, &field, problems),
            "tcpSocket" | "grpc" => validate_port(&action["port"], &field.child("port"), problems),
            "sleep" => {
                let seconds = action.number("seconds").unwrap_or(0);
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let why =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    problems.invalid(&field, seconds, &why);
                }
            }
            _ => {}
        }
    }
    if !found {
        problems.required(field, "must specify a handler type");
    }
}

fn validate_http_get(get: &Value, field: &Field, problems: &mut Problems) {
    if get.text("path").is_empty() {
        problems.required(&field.child("path"), "");
    }
    validate_port(&get["port"], &field.child("port"), problems);
    problems.unless_one_of(&field.child("scheme"), get.text("scheme"), &["HTTP", "HTTPS"]);
    for header in get.list("httpHeaders") {
        let name = header.text("name");
        problems.unless_formed(&field.child("httpHeaders"), name, names::http_header_name);
    }
}

fn validate_port(port: &Value, field: &Field, problems: &mut Problems) {
    match port {
        Value::String(name) => problems.unless_formed(field, name, names::port_name),
        number => problems.unless_within(field, number.as_i64().unwrap_or(0), 1, 65535),
    }
}
