//! The strategic merge patch that turns one node into another (`PatchNodeStatus`).

use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// The patch of the `status` sub-resource from `old` to `new`: of metadata and status what differs. Without a difference
/// it is `{}`, and still a sign of life.
pub(crate) fn node_patch(old: &Node, new: &Node) -> Result<Value, serde_json::Error> {
    let (mut old, mut new) = (object(old)?, object(new)?);
    for node in [&mut old, &mut new] {
        node.remove("spec");
    }
    // The API says of addresses that they merge by type, of which there can be several of one: what changed comes as a
    // whole.
    let addresses = |node: &Object| node.get("status").map(|status| status["addresses"].clone());
    let (before, after) = (addresses(&old), addresses(&new).unwrap_or_default());
    let replaced = before
        .as_ref()
        .is_some_and(|before| before.as_array().is_some_and(|list| !list.is_empty()) && *before != after);
    if replaced {
        set(&mut new, "addresses", before.unwrap_or_default());
    }
    let mut patch = diff(&old, &new);
    if replaced {
        let mut list = after.as_array().cloned().unwrap_or_default();
        list.push(json!({"$patch": "replace"}));
        set(&mut patch, "addresses", Value::Array(list));
    }
    Ok(Value::Object(patch))
}

fn object(node: &Node) -> Result<Object, serde_json::Error> {
    match serde_json::to_value(node)? {
        Value::Object(object) => Ok(object),
        _ => Ok(Object::new()),
    }
}

fn set(node: &mut Object, field: &str, value: Value) {
    let status = node.entry("status").or_insert_with(|| json!({}));
    status[field] = value;
}

/// Lists of a node that are merged element by element, with the field that tells their elements apart. All others are
/// replaced as a whole.
fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "conditions" | "addresses" => Some("type"),
        "ownerReferences" => Some("uid"),
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
            (Some(Value::Array(before)), Value::Array(after)) if !before.is_empty() => match merge_key(field)
            {
                Some(key) => diff_list(field, key, before, after, &mut patch),
                None => drop(patch.insert(field.clone(), value.clone())),
            },
            _ => drop(patch.insert(field.clone(), value.clone())),
        }
    }
    for field in old.keys().filter(|field| !new.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    patch
}

/// Elements that are new or differ, in the new order; then those that are gone; and beside them the new order.
fn diff_list(field: &str, key: &str, old: &[Value], new: &[Value], patch: &mut Object) {
    let find = |list: &[Value], wanted: &Value| list.iter().find(|one| one[key] == wanted[key]).cloned();
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

    fn patch(old: Value, new: Value) -> Value {
        let node = |value| serde_json::from_value(value).unwrap();
        node_patch(&node(old), &node(new)).unwrap()
    }

    fn ready(status: &str, heartbeat: &str) -> Value {
        json!({"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat})
    }

    #[test]
    fn patches_hold_what_changed_and_no_more() {
        let pressure = json!({"type": "DiskPressure", "status": "False"});
        let (nine, ten) = ("2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z");
        for (old, new, expected) in [
            (
                json!({"metadata": {"name": "n"}, "spec": {}, "status": {"phase": "x"}}),
                json!({"metadata": {"name": "n"}, "spec": {}, "status": {"phase": "x"}}),
                json!({}),
            ),
            // What is asked of the spec is not the status.
            (
                json!({"spec": {"unschedulable": true}, "status": {}}),
                json!({"status": {}}),
                json!({}),
            ),
            (
                json!({"status": {"conditions": [pressure, ready("True", nine)]}}),
                json!({"status": {"conditions": [pressure, ready("True", ten)]}}),
                json!({"status": {
                    "$setElementOrder/conditions": [{"type": "DiskPressure"}, {"type": "Ready"}],
                    "conditions": [{"type": "Ready", "lastHeartbeatTime": ten}],
                }}),
            ),
            (
                json!({"status": {}}),
                json!({"status": {"conditions": [pressure]}}),
                json!({"status": {"conditions": [pressure]}}),
            ),
            (
                json!({"status": {"capacity": {"cpu": "2", "example.com/x": "1"}}}),
                json!({"status": {"capacity": {"cpu": "4"}}}),
                json!({"status": {"capacity": {"cpu": "4", "example.com/x": null}}}),
            ),
            (
                json!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "1"}}}),
                json!({"metadata": {"labels": {"a": "2"}}}),
                json!({"metadata": {"labels": {"a": "2"}, "annotations": null}}),
            ),
            // Images are one value.
            (
                json!({"status": {"images": [{"names": ["a"]}, {"names": ["b"]}]}}),
                json!({"status": {"images": [{"names": ["b"]}]}}),
                json!({"status": {"images": [{"names": ["b"]}]}}),
            ),
        ] {
            assert_eq!(patch(old.clone(), new.clone()), expected, "{old} -> {new}");
        }
    }

    #[test]
    fn addresses_are_replaced() {
        let addresses = |list: &[(&str, &str)]| {
            let list: Vec<Value> = list
                .iter()
                .map(|(kind, address)| json!({"type": kind, "address": address}))
                .collect();
            json!({"status": {"addresses": list}})
        };
        let one = addresses(&[("InternalIP", "10.0.0.1"), ("Hostname", "n")]);
        let two = addresses(&[
            ("InternalIP", "10.0.0.1"),
            ("InternalIP", "fd00::1"),
            ("Hostname", "n"),
        ]);
        let mut expected = two.clone();
        expected["status"]["addresses"]
            .as_array_mut()
            .unwrap()
            .push(json!({"$patch": "replace"}));
        assert_eq!(patch(one.clone(), two.clone()), expected);
        assert_eq!(patch(json!({"status": {}}), two.clone()), two);
        assert_eq!(patch(two.clone(), two), json!({}));
    }
}
