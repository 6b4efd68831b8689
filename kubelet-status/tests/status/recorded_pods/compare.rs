//! Statuses beside each other.

use k8s_openapi::api::core::v1::PodStatus as ApiPodStatus;
use serde_json::{Value, json};

use super::steps::text;

/// A status without what the runtime's answers do not tell: the times of the node, what a container wrote at its end, and
/// what the pod's cgroup holds.
pub(crate) fn bare(status: &Value) -> Value {
    let mut bare = json!(serde_json::from_value::<ApiPodStatus>(status.clone()).unwrap());
    for field in ["startTime", "resources"] {
        bare.as_object_mut().unwrap().remove(field);
    }
    for condition in bare["conditions"].as_array_mut().into_iter().flatten() {
        condition.as_object_mut().unwrap().remove("lastTransitionTime");
    }
    for kind in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in bare[kind].as_array_mut().into_iter().flatten() {
            for state in ["state", "lastState"] {
                if let Some(end) = container[state]["terminated"].as_object_mut()
                    && end
                        .get("reason")
                        .is_none_or(|reason| reason != "ContainerStatusUnknown")
                {
                    end.remove("message");
                }
            }
        }
    }
    bare.as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null() && *value != json!([]));
    bare
}

/// Runs of equal ones as one. A terminal phase is told when nothing runs any more: that it comes later than the containers'
/// ends is no other status.
pub(crate) fn fold(statuses: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut folded: Vec<Value> = Vec::new();
    for status in statuses {
        match folded.last_mut() {
            Some(last) if without_phase(last) == without_phase(&status) => *last = status,
            _ => folded.push(status),
        }
    }
    folded
}

fn without_phase(status: &Value) -> Value {
    let mut status = status.clone();
    status.as_object_mut().unwrap().remove("phase");
    status
}

/// Each status that was seen is to be told, in that order. More may be told: a pod worker that is busy skips to the newest
/// inspection.
pub(crate) fn difference(told: &[Value], expected: &[Value]) -> Option<String> {
    let phase = |status: &Value| text(&status["phase"]);
    let may_be = |told: &Value, expected: &Value| {
        let ends = matches!(phase(told).as_str(), "Succeeded" | "Failed");
        without_phase(told) == without_phase(expected) && (ends || phase(told) == phase(expected))
    };
    let mut rest = told;
    for (number, expected) in expected.iter().enumerate() {
        match rest.iter().position(|told| may_be(told, expected)) {
            Some(found) => rest = &rest[found..],
            None => {
                let mut differences = Vec::new();
                compare(
                    "",
                    rest.last().unwrap_or(&Value::Null),
                    expected,
                    &mut differences,
                );
                return Some(format!(
                    "status {number} was not told, but: {}",
                    differences.join("; ")
                ));
            }
        }
    }
    let (last, seen) = (told.last()?, expected.last()?);
    (last != seen).then(|| {
        let mut differences = Vec::new();
        compare("", last, seen, &mut differences);
        format!("the last: {}", differences.join("; "))
    })
}

fn compare(at: &str, told: &Value, expected: &Value, differences: &mut Vec<String>) {
    match (told, expected) {
        (Value::Object(fields), Value::Object(others)) => {
            let mut names: Vec<&String> = fields.keys().chain(others.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                compare(&format!("{at}.{name}"), &told[name], &expected[name], differences);
            }
        }
        (Value::Array(elements), Value::Array(others)) if elements.len() == others.len() => {
            for (index, (told, expected)) in elements.iter().zip(others).enumerate() {
                compare(&format!("{at}[{index}]"), told, expected, differences);
            }
        }
        _ if told != expected => differences.push(format!("{at}: told {told}, seen {expected}")),
        _ => {}
    }
}
