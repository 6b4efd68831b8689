//! What holds of any patch.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::resource::{RESOURCES, Resource};
use super::*;

fn pods() -> &'static Resource {
    Resource::find("", "v1", "pods").unwrap()
}

/// Names that mean something to a pod, and names that don't.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("status"),
        Just("name"),
        Just("type"),
        Just("ip"),
        Just("labels"),
        Just("finalizers"),
        Just("containers"),
        Just("volumes"),
        Just("conditions"),
        Just("containerStatuses"),
        Just("podIPs"),
        Just("tolerations"),
        Just("bogus"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/conditions"),
        Just("$setElementOrder/finalizers"),
        Just("$setElementOrder/containers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("$deleteFromPrimitiveList"),
    ]
    .prop_map(str::to_string)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop_oneof![
            Just("a"),
            Just("b"),
            Just("delete"),
            Just("replace"),
            Just("merge"),
            Just("Ready")
        ]
        .prop_map(Value::from),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(6, 60, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::Array),
            btree_map(name(), inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A sane object: maps and lists as a pod has them.
fn pod() -> impl Strategy<Value = Value> {
    let names = || proptest::sample::subsequence(vec!["a", "b", "c", "d", "e", "f"], 0..6).prop_shuffle();
    (names(), names(), names()).prop_map(|(containers, conditions, finalizers)| {
        let containers: Vec<Value> = containers
            .iter()
            .map(|n| json!({"name": n, "image": "i"}))
            .collect();
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|t| json!({"type": t, "status": "True"}))
            .collect();
        let mut pod = json!({"metadata": {"finalizers": finalizers}, "spec": {"containers": containers},
            "status": {"conditions": conditions}});
        schema::normalize(pods(), &mut pod);
        pod
    })
}

/// Patches and writes the outcome as the server does.
fn patched(kind: PatchType, current: &Value, document: &Value) -> Value {
    let mut patched = patch(kind, pods(), current, document).unwrap();
    schema::normalize(pods(), &mut patched);
    patched
}

fn types(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|c| c["type"].as_str().unwrap().to_string()).collect()
}

proptest! {
    #[test]
    fn never_panics(current in any_json(), document in any_json(), deep in 0usize..300) {
        for kind in [PatchType::Json, PatchType::Merge, PatchType::Apply] {
            let _ = patch(kind, pods(), &current, &document);
        }
        for resource in RESOURCES {
            let _ = patch(PatchType::StrategicMerge, resource, &current, &document);
        }
        let nested = (0..deep).fold(document, |inner, i| if i % 2 == 0 { json!([inner]) } else { json!({"spec": inner}) });
        let _ = patch(PatchType::StrategicMerge, pods(), &current, &nested);
    }

    #[test]
    fn operations_never_panic(
        current in any_json(),
        operations in vec(
            (
                prop_oneof![Just("add"), Just("remove"), Just("replace"), Just("move"), Just("copy"), Just("test")],
                "(/(spec|status|containers|0|1|-|~1)){0,4}",
                "(/(spec|status|containers|0|1|-)){0,4}",
                any_json(),
            ),
            0..8,
        ),
    ) {
        let operations: Vec<Value> = operations
            .into_iter()
            .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
            .collect();
        if let Ok(patched) = patch(PatchType::Json, pods(), &current, &json!(operations)) {
            prop_assert!(within_depth(&patched, 2 * MAX_DEPTH));
        }
    }

    #[test]
    fn a_patch_of_no_change_changes_nothing(pod in pod()) {
        for empty in [json!({}), json!({"spec": {}}), json!({"metadata": {"labels": null}}), pod.clone()] {
            prop_assert_eq!(&patched(PatchType::Merge, &pod, &empty), &pod);
            prop_assert_eq!(&patched(PatchType::StrategicMerge, &pod, &empty), &pod);
        }
        prop_assert_eq!(&patched(PatchType::Json, &pod, &json!([])), &pod);
    }

    #[test]
    fn strategic_merge_patches_are_idempotent(pod in pod(), other in pod()) {
        let once = patched(PatchType::StrategicMerge, &pod, &other);
        let twice = patched(PatchType::StrategicMerge, &once, &other);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn element_order_loses_nothing_and_is_kept(
        pod in pod(),
        order in proptest::sample::subsequence(vec!["a", "b", "c", "d", "e", "f", "g", "h"], 1..8).prop_shuffle(),
        wanted in vec(any::<bool>(), 8),
    ) {
        let condition = |t: &&str| json!({"type": t});
        let patched_ones: Vec<Value> = order.iter().zip(&wanted).filter(|(_, w)| **w).map(|(t, _)| condition(t)).collect();
        let before = types(&pod["status"]["conditions"]);
        let document = json!({"status": {
            "$setElementOrder/conditions": order.iter().map(condition).collect::<Vec<_>>(),
            "conditions": patched_ones,
        }});
        prop_assume!(!(before.is_empty() && patched_ones.is_empty()));
        let patched = patched(PatchType::StrategicMerge, &pod, &document);
        let after = types(&patched["status"]["conditions"]);
        let added = types(&json!(patched_ones));
        for t in before.iter().chain(&added) {
            prop_assert_eq!(after.iter().filter(|a| *a == t).count(), 1, "{}", t);
        }
        prop_assert!(after.iter().all(|t| before.contains(t) || added.contains(t)));
        let ordered: Vec<&str> = after.iter().map(String::as_str).filter(|t| order.contains(t)).collect();
        let expected: Vec<&str> = order.iter().copied().filter(|t| ordered.contains(t)).collect();
        prop_assert_eq!(ordered, expected);
        let servers = |list: &[String]| -> Vec<String> {
            list.iter().filter(|t| !order.contains(&t.as_str())).cloned().collect()
        };
        prop_assert_eq!(servers(&after), servers(&before));
    }
}
