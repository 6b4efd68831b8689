//! Directives, order and refusals of strategic merge patches.

use serde_json::json;

use super::*;

/// Patches a pod's status.
fn status(current: Value, patch: Value) -> Result<Value, StatusError> {
    let patched = super::patch(
        schema::named("Pod"),
        &json!({"status": current}),
        &json!({"status": patch}),
    )?;
    Ok(patched["status"].clone())
}

/// Patches a pod's spec.
fn spec(current: Value, patch: Value) -> Result<Value, StatusError> {
    let patched = super::patch(
        schema::named("Pod"),
        &json!({"spec": current}),
        &json!({"spec": patch}),
    )?;
    Ok(patched["spec"].clone())
}

fn finalizers(current: Value, patch: Value) -> Result<Value, StatusError> {
    let patched = super::patch(
        schema::named("Pod"),
        &json!({"metadata": {"finalizers": current}}),
        &json!({"metadata": patch}),
    )?;
    Ok(patched["metadata"]["finalizers"].clone())
}

fn conditions(types: &[&str]) -> Value {
    types.iter().map(|t| json!({"type": t})).collect()
}

#[test]
fn lists_of_objects_merge_by_key_and_new_ones_go_to_the_end() {
    let merged = spec(
        json!({"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}),
        json!({"containers": [{"name": "c"}, {"name": "a", "env": [{"name": "Y", "value": "2"}], "image": null}]}),
    );
    assert_eq!(
        merged.unwrap(),
        json!({"containers": [
            {"name": "c"},
            {"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
            {"name": "b"},
        ]})
    );
}

#[test]
fn lists_without_a_strategy_are_replaced() {
    let merged = status(
        json!({"containerStatuses": [{"name": "a"}, {"name": "b"}]}),
        json!({"containerStatuses": [{"name": "b", "ready": true}]}),
    );
    assert_eq!(
        merged.unwrap(),
        json!({"containerStatuses": [{"name": "b", "ready": true}]})
    );
}

#[test]
fn primitive_lists_merge_and_lose_what_is_deleted() {
    let current = json!(["a", "b", "c"]);
    let cases = [
        (json!({"finalizers": ["d", "a"]}), json!(["d", "a", "b", "c"])),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["b"]}),
            json!(["a", "c"]),
        ),
        (
            json!({"$setElementOrder/finalizers": ["d", "c", "a"], "finalizers": ["d"],
                "$deleteFromPrimitiveList/finalizers": ["b"]}),
            json!(["d", "c", "a"]),
        ),
        (json!({"finalizers": null}), Value::Null),
    ];
    for (patch, expected) in cases {
        assert_eq!(
            finalizers(current.clone(), patch.clone()).unwrap(),
            expected,
            "{patch}"
        );
    }
}

#[test]
fn element_order_puts_what_only_the_server_has_between() {
    let cases = [
        // Server, order, patch, outcome.
        (
            &["A", "B", "C"][..],
            &["C", "A"][..],
            &[][..],
            &["B", "C", "A"][..],
        ),
        (&["A", "S", "B"], &["A", "B"], &[], &["A", "S", "B"]),
        (&["S", "A"], &["A", "N"], &["N"], &["S", "A", "N"]),
        (&["A", "S"], &["N", "A"], &["N"], &["N", "A", "S"]),
    ];
    for (server, order, patch, expected) in cases {
        let patched = status(
            json!({"conditions": conditions(server)}),
            json!({"$setElementOrder/conditions": conditions(order), "conditions": conditions(patch)}),
        );
        assert_eq!(
            patched.unwrap()["conditions"],
            conditions(expected),
            "{server:?} {order:?} {patch:?}"
        );
    }
}

#[test]
fn a_new_element_takes_the_place_that_a_deletion_left() {
    let patched = status(
        json!({"conditions": conditions(&["S", "A"])}),
        json!({
            "$setElementOrder/conditions": conditions(&["N"]),
            "conditions": [{"type": "A", "$patch": "delete"}, {"type": "N"}],
        }),
    );
    assert_eq!(patched.unwrap()["conditions"], conditions(&["S", "N"]));
}

#[test]
fn directives_delete_and_replace() {
    let two = json!({"conditions": conditions(&["A", "B"])});
    let cases = [
        (
            json!({"conditions": [{"type": "A", "$patch": "delete"}]}),
            json!({"conditions": conditions(&["B"])}),
        ),
        (
            json!({"conditions": [{"$patch": "replace"}, {"type": "C"}]}),
            json!({"conditions": conditions(&["C"])}),
        ),
        (
            json!({"$patch": "replace", "phase": "Failed"}),
            json!({"phase": "Failed"}),
        ),
        (json!({"$patch": "delete"}), json!({})),
        // There is nothing to delete from.
        (
            json!({"podIPs": [{"ip": "::1", "$patch": "delete"}, {"ip": "::2"}], "reason": null}),
            json!({"conditions": conditions(&["A", "B"]), "podIPs": [{"ip": "::2"}]}),
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(status(two.clone(), patch.clone()).unwrap(), expected, "{patch}");
    }
}

#[test]
fn retained_keys_are_all_that_stays() {
    let volumes = json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w"}]});
    let patched = spec(
        volumes,
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}),
    );
    assert_eq!(
        patched.unwrap(),
        json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w"}]})
    );
}

#[test]
fn refusals() {
    let current = || json!({"conditions": [{"type": "A", "status": "True"}]});
    let cases = [
        (
            json!({"conditions": [{"status": "True"}]}),
            500,
            "map: map[status:True] does not contain declared merge key: type",
        ),
        (
            json!({"conditions": [{"$patch": "delete"}]}),
            500,
            "map: map[$patch:delete] does not contain declared merge key: type",
        ),
        (
            json!({"conditions": [{"type": "A", "$patch": "bogus"}]}),
            500,
            "unknown patch type: bogus in map: map[$patch:bogus type:A]",
        ),
        (
            json!({"conditions": [{"type": "A", "$patch": "merge"}]}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"conditions": ["A"]}),
            500,
            "list element types are not identical: [[map[status:True type:A]] [A]]",
        ),
        (
            json!({"$patch": "merge"}),
            500,
            "unknown patch type: merge in map: map[$patch:merge]",
        ),
        (
            json!({"$setElementOrder/conditions": conditions(&["A"]), "conditions": conditions(&["B"])}),
            500,
            "The order in patch list:\n[map[type:B]]\n doesn't match $setElementOrder list:\n[map[type:A]]\n",
        ),
        (
            json!({"$setElementOrder/conditions": "A"}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"$setElementOrder/bogus": []}),
            500,
            "unable to find api field in struct PodStatus for the json field \"bogus\"",
        ),
        (
            json!({"$setElementOrder": []}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"$deleteFromPrimitiveList": []}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            json!({"$retainKeys": ["phase"], "reason": "x"}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"conditions": [[]]}),
            500,
            "list element types are not identical: [[map[status:True type:A]] [[]]]",
        ),
    ];
    for (patch, code, message) in cases {
        let refusal = status(current(), patch.clone()).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.message.as_str()),
            (code, message),
            "{patch}"
        );
    }
    let refusal = super::patch(schema::named("Pod"), &json!({}), &json!([])).unwrap_err();
    assert_eq!(
        refusal.message,
        "json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
}
