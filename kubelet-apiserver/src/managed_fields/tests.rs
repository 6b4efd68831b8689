//! Who owns what after updates and applies.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::super::resource::Resource;
use super::super::status_error::StatusError;
use super::*;

fn pods() -> &'static Resource {
    Resource::find("", "v1", "pods").unwrap()
}

fn config_maps() -> &'static Resource {
    Resource::find("", "v1", "configmaps").unwrap()
}

fn at(second: u8) -> Timestamp {
    format!("2026-01-01T00:00:{second:02}Z").parse().unwrap()
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
}

fn stored(mut object: Value) -> Value {
    schema::normalize(config_maps(), &mut object);
    object
}

fn apply_map(
    current: Option<&Value>,
    data: Value,
    manager: &str,
    force: bool,
    second: u8,
) -> Result<Value, StatusError> {
    apply(
        config_maps(),
        current,
        &config_map(data),
        manager,
        force,
        "",
        at(second),
    )
    .map(stored)
}

/// Every entry as `operation manager: fields`.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    entries
        .map(|entry| {
            let set = FieldSet::from_fields_v1(&entry["fieldsV1"]).unwrap();
            let text = |name: &str| entry[name].as_str().unwrap();
            format!(
                "{} {}: {}",
                text("operation"),
                text("manager"),
                set.paths().join(" ")
            )
        })
        .collect()
}

#[test]
fn what_is_no_longer_applied_goes_unless_another_has_it() {
    let first = apply_map(None, json!({"a": "1", "b": "1"}), "me", false, 1).unwrap();
    assert_eq!(owners(&first), ["Apply me: .data.a .data.b"]);
    let shared = apply_map(Some(&first), json!({"b": "1", "c": "1"}), "you", false, 2).unwrap();
    assert_eq!(
        owners(&shared),
        ["Apply me: .data.a .data.b", "Apply you: .data.b .data.c"]
    );
    let less = apply_map(Some(&shared), json!({}), "me", false, 3).unwrap();
    assert_eq!(less["data"], json!({"b": "1", "c": "1"}));
    assert_eq!(owners(&less), ["Apply you: .data.b .data.c", "Apply me: .data"]);
}

#[test]
fn what_an_update_made_its_own_conflicts_and_survives() {
    let mut current = stored(config_map(json!({"a": "1"})));
    updated(config_maps(), None, &mut current, "writer", "", at(1));
    assert_eq!(owners(&current), ["Update writer: .data .data.a"]);

    let refusal = apply_map(Some(&current), json!({"a": "2"}), "me", false, 2).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (
            409,
            "Apply failed with 1 conflict: conflict with \"writer\" using v1: .data.a"
        )
    );
    let same = apply_map(Some(&current), json!({"a": "1", "b": "1"}), "me", false, 2).unwrap();
    assert_eq!(
        owners(&same),
        ["Apply me: .data.a .data.b", "Update writer: .data .data.a"]
    );
    let without = apply_map(Some(&same), json!({"c": "1"}), "me", false, 3).unwrap();
    assert_eq!(without["data"], json!({"a": "1", "c": "1"}));

    let forced = apply_map(Some(&current), json!({"a": "2"}), "me", true, 2).unwrap();
    assert_eq!(forced["data"], json!({"a": "2"}));
    assert_eq!(owners(&forced), ["Apply me: .data.a", "Update writer: .data"]);
}

#[test]
fn conflicts_are_listed_by_manager() {
    let mine = apply_map(None, json!({"a": "1", "b": "1"}), "me", false, 1).unwrap();
    let mut both = mine.clone();
    both["data"]["c"] = json!("1");
    updated(config_maps(), Some(&mine), &mut both, "kubectl-edit", "", at(2));
    let refusal = apply_map(
        Some(&both),
        json!({"a": "2", "b": "2", "c": "2"}),
        "you",
        false,
        3,
    )
    .unwrap_err();
    assert_eq!(
        refusal.message,
        "Apply failed with 3 conflicts: conflicts with \"kubectl-edit\" using v1:\n- .data.c\n\
         conflicts with \"me\":\n- .data.a\n- .data.b"
    );
    let causes = refusal.details.unwrap()["causes"].clone();
    assert_eq!(
        causes[1],
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"me\"", "field": ".data.a"})
    );
}

#[test]
fn an_apply_without_changes_keeps_its_time() {
    let first = apply_map(None, json!({"a": "1"}), "me", false, 1).unwrap();
    let again = apply_map(Some(&first), json!({"a": "1"}), "me", false, 2).unwrap();
    assert_eq!(again, first);
    let changed = apply_map(Some(&again), json!({"a": "2"}), "me", false, 3).unwrap();
    assert_eq!(
        changed["metadata"]["managedFields"][0]["time"],
        "2026-01-01T00:00:03Z"
    );
}

#[test]
fn fields_without_a_manager_belong_to_before_first_apply() {
    let mut current = stored(config_map(json!({"a": "1", "b": "1"})));
    current["metadata"]["uid"] = json!("u");
    let mut same = current.clone();
    updated(config_maps(), Some(&current), &mut same, "writer", "", at(1));
    assert_eq!(owners(&same), Vec::<String>::new());

    let applied = apply_map(Some(&current), json!({"a": "1"}), "me", false, 2).unwrap();
    assert_eq!(
        owners(&applied),
        [
            "Apply me: .data.a",
            "Update before-first-apply: .data .data.a .data.b"
        ]
    );
}

#[test]
fn list_elements_are_owned_by_key() {
    let pod = |containers: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}});
    let port = |n: u16| json!({"containerPort": n});
    let first = pod(json!([{"name": "a", "image": "1", "ports": [port(1)]}, {"name": "b", "image": "1"}]));
    let mut object = apply(pods(), None, &first, "me", false, "", at(1)).unwrap();
    schema::normalize(pods(), &mut object);
    let ports = &object["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:containers"]["k:{\"name\":\"a\"}"]
        ["f:ports"];
    assert_eq!(
        *ports,
        json!({"k:{\"containerPort\":1,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}})
    );

    let sidecar = pod(json!([{"name": "s", "image": "1"}]));
    let mut object = apply(pods(), Some(&object), &sidecar, "injector", false, "", at(2)).unwrap();
    schema::normalize(pods(), &mut object);
    let less = pod(json!([{"name": "b", "image": "2"}]));
    let object = apply(pods(), Some(&object), &less, "me", false, "", at(3)).unwrap();
    assert_eq!(
        object["spec"]["containers"],
        json!([{"name": "b", "image": "2", "resources": {}}, {"name": "s", "image": "1", "resources": {}}])
    );
}

/// `kubectl apply` with `--server-side` takes over what it applied without.
#[test]
fn kubectl_takes_over_what_it_applied_before() {
    let name = "kubectl.kubernetes.io/last-applied-configuration";
    let mut current = stored(config_map(json!({"a": "1", "b": "1"})));
    current["metadata"]["annotations"] = json!({name: config_map(json!({"a": "1", "b": "0"})).to_string()});
    updated(
        config_maps(),
        None,
        &mut current,
        "kubectl-client-side-apply",
        "",
        at(1),
    );

    // `b` was changed since.
    let refusal = apply_map(Some(&current), json!({"a": "2", "b": "2"}), "kubectl", false, 2).unwrap_err();
    assert_eq!(
        refusal.message,
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.b"
    );
    assert_eq!(
        apply_map(Some(&current), json!({"a": "2"}), "me", false, 2)
            .unwrap_err()
            .code,
        409
    );
    let taken = apply_map(Some(&current), json!({"a": "2"}), "kubectl", false, 2).unwrap();
    assert_eq!(taken["data"], json!({"a": "2", "b": "1"}));
    let annotation = taken["metadata"]["annotations"][name].as_str().unwrap();
    assert_eq!(annotation, format!("{}\n", config_map(json!({"a": "2"}))));
}

#[test]
fn applies_that_make_no_sense_are_refused() {
    let cases = [
        (
            json!({"apiVersion": "v1", "kind": "Pod"}),
            400,
            "invalid object type: /v1, Kind=Pod",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "ConfigMap"}),
            400,
            "invalid object type: apps/v1, Kind=ConfigMap",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": []}}),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "bogus": 1}),
            500,
            "failed to create typed patch object (/m; /v1, Kind=ConfigMap): .bogus: field not declared in schema",
        ),
    ];
    for (applied, code, message) in cases {
        let refusal = apply(config_maps(), None, &applied, "me", false, "", at(1)).unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (code, message));
    }
    let twice = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"},
        "spec": {"containers": [{"name": "a"}, {"name": "a"}]}});
    let refusal = apply(pods(), None, &twice, "me", false, "", at(1)).unwrap_err();
    assert_eq!(
        refusal.message,
        "failed to create typed patch object (n/p; /v1, Kind=Pod): .spec.containers: duplicate entries for key [name=\"a\"]"
    );
}

#[test]
fn the_oldest_of_too_many_managers_are_joined() {
    let mut object = stored(config_map(json!({"z": "1"})));
    updated(config_maps(), None, &mut object, "maker", "", at(0));
    for n in 0..13_u8 {
        let old = object.clone();
        object["data"][format!("k{n:02}")] = json!("1");
        updated(
            config_maps(),
            Some(&old),
            &mut object,
            &format!("m{n:02}"),
            "",
            at(n + 1),
        );
    }
    let owners = owners(&object);
    assert_eq!(owners.len(), 10);
    assert_eq!(
        owners[0],
        "Update ancient-changes: .data .data.k00 .data.k01 .data.k02 .data.k03 .data.z"
    );
    assert_eq!(owners[9], "Update m12: .data.k12");
}

#[test]
fn an_update_may_forget_all_owners() {
    let mut current = stored(config_map(json!({"a": "1"})));
    updated(config_maps(), None, &mut current, "writer", "", at(1));
    for handed_over in [json!([]), json!([{}])] {
        let mut new = current.clone();
        new["metadata"]["managedFields"] = handed_over;
        schema::normalize(config_maps(), &mut new);
        updated(config_maps(), Some(&current), &mut new, "other", "", at(2));
        assert_eq!(owners(&new), Vec::<String>::new());
    }
    // Nonsense is passed over.
    let mut new = current.clone();
    new["metadata"]["managedFields"] = json!([{"operation": "Bogus"}]);
    updated(config_maps(), Some(&current), &mut new, "other", "", at(2));
    assert_eq!(
        new["metadata"]["managedFields"],
        current["metadata"]["managedFields"]
    );
}

#[test]
fn times_of_what_came_to_nothing_are_taken_back() {
    let mut old = stored(config_map(json!({"a": "1"})));
    updated(config_maps(), None, &mut old, "writer", "", at(1));
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:09Z");
    keep_times(&old, &mut new);
    assert_eq!(new, old);

    new["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:09Z");
    new["data"]["a"] = json!("2");
    let changed = new.clone();
    keep_times(&old, &mut new);
    assert_eq!(new, changed);
}

#[test]
fn a_resize_owns_resources_alone() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "resources": {}}]}});
    let mut new = pod.clone();
    new["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    new["metadata"]["labels"] = json!({"x": "1"});
    let mut old = pod;
    old["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:hostname": {}}}}]);
    updated(pods(), Some(&old), &mut new, "resizer", "resize", at(1));
    assert_eq!(
        owners(&new)[1],
        "Update resizer: .spec.containers[name=\"a\"].resources.limits \
         .spec.containers[name=\"a\"].resources.limits.cpu"
    );
}

mod properties {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            prop_oneof![
                Just("Update"),
                Just("Apply"),
                Just("v1"),
                Just("FieldsV1"),
                Just("x")
            ]
            .prop_map(Value::from),
        ];
        let name = prop_oneof![
            Just("metadata"),
            Just("managedFields"),
            Just("operation"),
            Just("apiVersion"),
            Just("fieldsType"),
            Just("fieldsV1"),
            Just("f:data"),
            Just("f:"),
            Just("k:{\"name\":\"a\"}"),
            Just("k:{"),
            Just("v:1"),
            Just("i:0"),
            Just("."),
            Just("é"),
            Just("data"),
            Just("spec"),
            Just("containers"),
            Just("name"),
        ];
        scalar.prop_recursive(7, 80, 4, move |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::Array),
                btree_map(name.clone().prop_map(str::to_string), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn never_panics(old in any_json(), new in any_json(), entries in any_json()) {
            for resource in [pods(), config_maps()] {
                for old in [None, Some(&old)] {
                    let mut object = new.clone();
                    updated(resource, old, &mut object, "m", "", at(1));
                    let mut object = json!({"metadata": {"managedFields": entries}, "data": new});
                    updated(resource, old, &mut object, "m", "status", at(1));
                    keep_times(&new, &mut object);
                    let mut applied = new.clone();
                    let _ = apply(resource, old, &applied, "m", true, "", at(1));
                    if let Some(map) = applied.as_object_mut() {
                        map.insert("apiVersion".into(), json!("v1"));
                        map.insert("kind".into(), json!(resource.kind));
                    }
                    let _ = apply(resource, old, &applied, "m", false, "", at(1));
                }
            }
        }

        /// The last manager that changed a field is its only owner; a missing field has no owner.
        #[test]
        fn the_last_to_change_a_field_owns_it(
            steps in vec((0usize..4, btree_map("[a-d]", 0u8..3, 0..4)), 1..12),
        ) {
            let mut object: Option<Value> = None;
            let mut last: std::collections::BTreeMap<String, (u8, usize)> = Default::default();
            for (second, (manager, data)) in steps.into_iter().enumerate() {
                let values: Value = data.iter().map(|(k, v)| (k.clone(), json!(v.to_string()))).collect();
                let mut new = stored(config_map(values));
                if let Some(old) = &object {
                    new["metadata"] = old["metadata"].clone();
                }
                updated(config_maps(), object.as_ref(), &mut new, &format!("m{manager}"), "", at(second as u8));
                // An object without managed fields stays so.
                let tracked = new["metadata"].get("managedFields").is_some();
                last.retain(|key, _| data.contains_key(key));
                for (key, value) in data {
                    if last.get(&key).is_none_or(|(old, _)| *old != value) {
                        last.insert(key, (value, manager));
                    }
                }
                if !tracked {
                    prop_assert!(last.is_empty() || object.is_some());
                    return Ok(());
                }
                for (key, (_, manager)) in &last {
                    let path = format!(".data.{key}");
                    let all = owners(&new);
                    let of: Vec<&String> = all.iter().filter(|o| o.split(' ').any(|p| p == path)).collect();
                    prop_assert_eq!(of.len(), 1, "{} {:?}", path, all);
                    let start = format!("Update m{manager}:");
                    prop_assert!(of[0].starts_with(&start), "{} {:?}", path, all);
                }
                let count: usize = owners(&new).iter().map(|o| o.matches(".data.").count()).sum();
                prop_assert_eq!(count, last.len());
                object = Some(new);
            }
        }

        /// What is applied is there, is owned, and applied again changes nothing.
        #[test]
        fn applies_are_idempotent(
            steps in vec((0usize..3, btree_map("[a-d]", 0u8..3, 1..4)), 1..8),
        ) {
            let mut object: Option<Value> = None;
            for (second, (manager, data)) in steps.into_iter().enumerate() {
                let values: Value = data.iter().map(|(k, v)| (k.clone(), json!(v.to_string()))).collect();
                let manager = format!("m{manager}");
                let once = apply_map(object.as_ref(), values.clone(), &manager, true, second as u8).unwrap();
                for (key, value) in values.as_object().unwrap() {
                    prop_assert_eq!(&once["data"][key], value);
                }
                let mut again = apply_map(Some(&once), values, &manager, false, 59).unwrap();
                keep_times(&once, &mut again);
                prop_assert_eq!(&again, &once);
                object = Some(once);
            }
        }
    }
}
