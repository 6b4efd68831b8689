//! The patch between two versions of an object.

use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// The strategic merge patch that turns `old` into `new`: two nodes, two pods, or parts of them, as JSON
/// (`strategicpatch.CreateTwoWayMergePatch`). It contains only the differences; `{}` if there are none.
///
/// Removed fields are `null`. A list is one value, unless the API merges its elements by a key: `conditions` and
/// `addresses` by `type`, `hostIPs` and `podIPs` by `ip`, `resourceClaimStatuses` by `name`, `ownerReferences` by
/// `uid`. A value that is not an object counts as `{}`.
///
/// ```
/// use kubelet_core::strategic_merge_patch;
/// use serde_json::json;
///
/// let old = json!({"phase": "Pending", "message": "wait", "conditions": [
///     {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}]});
/// let new = json!({"phase": "Running", "conditions": [
///     {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]});
/// assert_eq!(strategic_merge_patch(&old, &new), json!({
///     "phase": "Running",
///     "message": null,
///     "$setElementOrder/conditions": [{"type": "PodScheduled"}, {"type": "Ready"}],
///     "conditions": [{"type": "Ready", "status": "True"}],
/// }));
/// ```
pub fn strategic_merge_patch(old: &Value, new: &Value) -> Value {
    let none = Object::new();
    let object = |value| Value::as_object(value).unwrap_or(&none);
    Value::Object(diff(object(old), object(new)))
}

/// The key by which the API merges a list (`x-kubernetes-patch-merge-key`), for the objects that a kubelet updates.
fn merge_key(field: &str) -> Option<&'static str> {
    match field {
        "addresses" | "conditions" => Some("type"),
        "hostIPs" | "podIPs" => Some("ip"),
        "resourceClaimStatuses" => Some("name"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

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

/// The new and changed elements, in the new order; then the removed ones; and the directive with the new order.
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

    #[test]
    fn patches_hold_what_changed_and_no_more() {
        let ready = |status: &str| json!({"type": "Ready", "status": status});
        let reason = json!({"type": "Ready", "status": "False", "reason": "ContainersNotReady"});
        let other = json!({"type": "example.com/x", "status": "True"});
        let (main, sidecar) = (
            json!({"name": "a", "ready": false}),
            json!({"name": "b", "ready": false}),
        );
        for (old, new, expected) in [
            (json!({}), json!({}), json!({})),
            (
                json!({"phase": "Running", "conditions": [ready("True")], "podIPs": []}),
                json!({"phase": "Running", "conditions": [ready("True")], "podIPs": []}),
                json!({}),
            ),
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
            (
                json!({"capacity": {"cpu": "2", "example.com/x": "1"}}),
                json!({"capacity": {"cpu": "4"}}),
                json!({"capacity": {"cpu": "4", "example.com/x": null}}),
            ),
            (
                json!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "1"}}}),
                json!({"metadata": {"labels": {"a": "2"}}}),
                json!({"metadata": {"labels": {"a": "2"}, "annotations": null}}),
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
                json!({"conditions": [other]}),
                json!({"conditions": []}),
                json!({"conditions": [{"$patch": "delete", "type": "example.com/x"}]}),
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
            (
                json!({"ownerReferences": [{"uid": "1", "name": "a"}]}),
                json!({"ownerReferences": [{"uid": "1", "name": "b"}]}),
                json!({"$setElementOrder/ownerReferences": [{"uid": "1"}],
                    "ownerReferences": [{"uid": "1", "name": "b"}]}),
            ),
            (
                json!({"resourceClaimStatuses": [{"name": "a"}]}),
                json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "x"}]}),
                json!({"$setElementOrder/resourceClaimStatuses": [{"name": "a"}],
                    "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "x"}]}),
            ),
            // Images and statuses of containers are one value.
            (
                json!({"images": [{"names": ["a"]}, {"names": ["b"]}]}),
                json!({"images": [{"names": ["b"]}]}),
                json!({"images": [{"names": ["b"]}]}),
            ),
            (
                json!({"containerStatuses": [main, sidecar]}),
                json!({"containerStatuses": [sidecar, main]}),
                json!({"containerStatuses": [sidecar, main]}),
            ),
            // What is no object is none.
            (
                json!(null),
                json!({"phase": "Pending"}),
                json!({"phase": "Pending"}),
            ),
            (json!({"phase": "Pending"}), json!(7), json!({"phase": null})),
        ] {
            assert_eq!(strategic_merge_patch(&old, &new), expected, "{old} -> {new}");
        }
    }
}
