//! The strategic merge patch that turns one pod status into another (`CreateTwoWayMergePatch`).

use k8s_openapi::api::core::v1::PodStatus as ApiPodStatus;
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// The patch of the `status` sub-resource from `old` to `new`, with the UID that the pod must have; `None` where
/// nothing differs.
pub(super) fn status_patch(
    uid: &str,
    old: &ApiPodStatus,
    new: &ApiPodStatus,
) -> Result<Option<Value>, serde_json::Error> {
    let (old, new) = (serde_json::to_value(old)?, serde_json::to_value(new)?);
    let none = Object::new();
    let status = diff(old.as_object().unwrap_or(&none), new.as_object().unwrap_or(&none));
    Ok((!status.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": status})))
}

/// Lists of a pod's status that are merged element by element, with the field that tells their elements apart. All
/// others are replaced as a whole.
fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "conditions" => Some("type"),
        "podIPs" | "hostIPs" => Some("ip"),
        "resourceClaimStatuses" => Some("name"),
        _ => None,
    }
}

/// What changed between two objects: what is new or differs, and `null` for what is gone.
fn diff(old: &Object, new: &Object) -> Object {
    let mut patch = Object::new();
    for (field, value) in new {
        match (old.get(field), value) {
            (Some(before), value) if before == value => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(field.clone(), Value::Object(diff(before, after)));
            }
            (Some(Value::Array(before)), Value::Array(after))
                if !before.is_empty() && merge_key(field).is_some() =>
            {
                let key = merge_key(field).unwrap_or_default();
                diff_list(field, key, before, after, &mut patch);
            }
            _ => {
                patch.insert(field.clone(), value.clone());
            }
        }
    }
    for field in old.keys().filter(|field| !new.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    patch
}

/// Elements that are new or differ, in the new order; then those that are gone; and beside them the new order.
fn diff_list(field: &str, key: &str, old: &[Value], new: &[Value], patch: &mut Object) {
    let find =
        |list: &[Value], wanted: &Value| list.iter().find(|element| element[key] == wanted[key]).cloned();
    let mut elements = Vec::new();
    for element in new {
        match (find(old, element), element) {
            (Some(before), after) if before == *after => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                let mut changed = diff(&before, after);
                changed.insert(key.to_owned(), element[key].clone());
                elements.push(Value::Object(changed));
            }
            _ => elements.push(element.clone()),
        }
    }
    let gone = old.iter().filter(|element| find(new, element).is_none());
    elements.extend(gone.map(|element| json!({"$patch": "delete", key: element[key]})));

    let order: Vec<Value> = new.iter().map(|element| json!({key: element[key]})).collect();
    let moved = old.len() != new.len() || old.iter().zip(new).any(|(old, new)| old[key] != new[key]);
    if (moved || !elements.is_empty()) && !order.is_empty() {
        patch.insert(format!("$setElementOrder/{field}"), Value::Array(order));
    }
    if !elements.is_empty() {
        patch.insert(field.to_owned(), Value::Array(elements));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(old: Value, new: Value) -> Option<Value> {
        let status = |value| serde_json::from_value(value).unwrap();
        status_patch("1", &status(old), &status(new)).unwrap()
    }

    #[test]
    fn patches_hold_what_changed_and_no_more() {
        let ready = |status: &str| json!({"type": "Ready", "status": status});
        let reason = json!({"type": "Ready", "status": "False", "reason": "ContainersNotReady"});
        let other = json!({"type": "example.com/x", "status": "True"});
        for (old, new, expected) in [
            (
                json!({}),
                json!({"phase": "Pending"}),
                json!({"phase": "Pending"}),
            ),
            (
                json!({"reason": "Evicted"}),
                json!({"phase": "Failed"}),
                json!({"phase": "Failed", "reason": null}),
            ),
            // A list that was empty comes whole, without an order.
            (
                json!({}),
                json!({"conditions": [reason]}),
                json!({"conditions": [reason]}),
            ),
            (
                json!({"conditions": []}),
                json!({"conditions": [reason]}),
                json!({"conditions": [reason]}),
            ),
            (
                json!({"conditions": [reason, other]}),
                json!({"conditions": [ready("True"), other]}),
                json!({
                    "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "example.com/x"}],
                    "conditions": [{"type": "Ready", "status": "True", "reason": null}],
                }),
            ),
            (
                json!({"conditions": [ready("True"), other]}),
                json!({"conditions": [other, ready("True")]}),
                json!({"$setElementOrder/conditions": [{"type": "example.com/x"}, {"type": "Ready"}]}),
            ),
            (
                json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}),
                json!({"podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::1"}]}),
                json!({
                    "$setElementOrder/podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::1"}],
                    "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}],
                }),
            ),
            (
                json!({"podIPs": [{"ip": "10.0.0.1"}]}),
                json!({}),
                json!({"podIPs": null}),
            ),
            // Statuses of containers are one value.
            (
                json!({"containerStatuses": [
                    {"name": "a", "image": "i", "imageID": "", "ready": false, "restartCount": 0},
                    {"name": "b", "image": "i", "imageID": "", "ready": false, "restartCount": 0}]}),
                json!({"containerStatuses": [
                    {"name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0},
                    {"name": "b", "image": "i", "imageID": "", "ready": false, "restartCount": 0}]}),
                json!({"containerStatuses": [
                    {"name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0},
                    {"name": "b", "image": "i", "imageID": "", "ready": false, "restartCount": 0}]}),
            ),
            (
                json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}),
                json!({"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}),
                json!({"resources": {"limits": {"cpu": "2"}}}),
            ),
        ] {
            assert_eq!(
                patch(old.clone(), new.clone()),
                Some(json!({"metadata": {"uid": "1"}, "status": expected})),
                "{old} -> {new}"
            );
        }
    }

    #[test]
    fn no_change_is_no_patch() {
        let status =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "podIPs": []});
        assert_eq!(patch(status.clone(), status), None);
        assert_eq!(patch(json!({}), json!({})), None);
    }
}
