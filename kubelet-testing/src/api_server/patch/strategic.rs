//! Strategic merge patch: lists merge by keys, directives say what merging cannot.

use serde_json::{Map, Value};

use super::super::schema::{self, Field, Kind, Type, json_type};
use super::super::status_error::StatusError;
use super::element_order::{self, Elements, ServerOrder, merge_value, position};
use super::go::{go_interface, go_print};

/// `delete` or `replace`: what becomes of the object or list element that the directive is in.
pub(super) const DIRECTIVE: &str = "$patch";
/// `$deleteFromPrimitiveList/<field>`: the scalars to take out of a list.
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
/// `$setElementOrder/<field>`: the order of a list's elements.
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
/// The only fields that an object is to keep.
const RETAIN_KEYS: &str = "$retainKeys";

const BAD_PRIMITIVE_LIST: &str = "invalid patch format of primitive list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
const BAD_SET_ELEMENT_ORDER: &str = "invalid patch format of setElementOrder list";

/// Merges a patch into an object of a type.
///
/// # Errors
///
/// 400 for a patch or directive of wrong form, 422 for lists of lists, and 500, as the API server, for a patch that
/// contradicts the types, lacks a merge key, or has a `$patch` that isn't known.
pub(super) fn patch(r#type: &'static Type, current: &Value, patch: &Value) -> Result<Value, StatusError> {
    let patch = match patch {
        Value::Null => Map::new(),
        Value::Object(patch) => patch.clone(),
        other => {
            return Err(StatusError::bad_request(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                json_type(other)
            )));
        }
    };
    let current = current.as_object().cloned().unwrap_or_default();
    merge_object(current, patch, &Kind::Struct(r#type.name)).map(Value::Object)
}

type Object = Map<String, Value>;

fn merge_object(mut original: Object, mut patch: Object, kind: &Kind) -> Result<Object, StatusError> {
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None => {}
        Some(Some("replace")) => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(Some("delete")) => return Ok(Map::new()),
        Some(_) => return Err(unknown_directive(&patch)),
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_orders(&mut original, &mut patch, kind)?;
    for (key, value) in patch {
        if let Some(list) = directed(&key, DELETE_FROM_PRIMITIVE_LIST, BAD_PRIMITIVE_LIST)? {
            delete_from_list(&mut original, list, value, kind)?;
        } else {
            merge_field(&mut original, key, value, kind)?;
        }
    }
    Ok(original)
}

/// The field that a directive such as `$setElementOrder/conditions` is about, if the key is such a directive.
fn directed<'a>(key: &'a str, directive: &str, malformed: &str) -> Result<Option<&'a str>, StatusError> {
    let Some(rest) = key.strip_prefix(directive) else {
        return Ok(None);
    };
    match rest.strip_prefix('/') {
        Some(field) => Ok(Some(field)),
        None => Err(StatusError::bad_request(malformed)),
    }
}

/// `$retainKeys`: takes out of the original what the list doesn't name; the patch may set no other.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), StatusError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(keys) = keys else {
        return Err(StatusError::bad_request(BAD_RETAIN_KEYS));
    };
    let retained = |key: &str| keys.iter().any(|k| k.as_str() == Some(key));
    let strange = patch.iter().any(|(key, value)| {
        !value.is_null()
            && !key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
            && !key.starts_with(SET_ELEMENT_ORDER)
            && !retained(key)
    });
    if strange {
        return Err(StatusError::bad_request(BAD_RETAIN_KEYS));
    }
    original.retain(|key, _| retained(key));
    Ok(())
}

/// `$setElementOrder/<field>`: merges the lists that have one and puts their elements into order; what the patch says of
/// these lists is then done.
fn set_element_orders(original: &mut Object, patch: &mut Object, kind: &Kind) -> Result<(), StatusError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let order = list(patch.remove(&directive).unwrap_or_default())?;
        let Some(name) = directed(&directive, SET_ELEMENT_ORDER, BAD_SET_ELEMENT_ORDER)? else {
            continue;
        };
        let live = original.get(name).cloned().map(list).transpose()?;
        let wanted = patch.get(name).cloned().map(list).transpose()?;
        let (field, element) = list_field(kind, name)?;
        let key = field.merge_key;
        element_order::check(wanted.as_deref().unwrap_or_default(), &order, key)?;

        let (merged, server_order) = match (&live, &wanted) {
            (None, None) => continue,
            (Some(live), None) => (live.clone(), live.clone()),
            (None, Some(wanted)) => (
                wanted.iter().cloned().filter_map(undirected).collect(),
                Vec::new(),
            ),
            (Some(live), Some(wanted)) if field.merge => {
                merge_list(live.clone(), wanted.clone(), element, key)?
            }
            (Some(live), Some(wanted)) => (wanted.clone(), live.clone()),
        };
        let elements = Elements::of(&[live.as_deref(), wanted.as_deref()])?;
        let ordered = element_order::arrange(merged, &order, &server_order, elements, key)?;
        original.insert(name.to_string(), Value::Array(ordered));
        patch.remove(name);
    }
    Ok(())
}

fn merge_field(original: &mut Object, key: String, value: Value, kind: &Kind) -> Result<(), StatusError> {
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let merged = match (original.remove(&key), value) {
        (Some(Value::Object(live)), Value::Object(value)) => {
            let field = field(kind, &key)?;
            Some(Value::Object(merge_object(live, value, &field.kind)?))
        }
        (Some(Value::Array(live)), Value::Array(value)) => {
            let (field, element) = list_field(kind, &key)?;
            Some(Value::Array(if field.merge {
                merge_and_order(live, value, element, field.merge_key)?
            } else {
                value
            }))
        }
        (_, value) => undirected(without_nulls(value)),
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

/// `$deleteFromPrimitiveList/<field>`, whatever the field's own strategy.
fn delete_from_list(original: &mut Object, name: &str, value: Value, kind: &Kind) -> Result<(), StatusError> {
    if value.is_null() {
        original.remove(name);
        return Ok(());
    }
    let (live, unwanted) = match (original.get_mut(name), value) {
        (Some(Value::Array(live)), Value::Array(unwanted)) => (live, unwanted),
        // The directive is passed over where there is no list.
        (Some(live), value) if go_interface(live) == go_interface(&value) => {
            return merge_field(original, name.to_string(), value, kind);
        }
        _ => return Ok(()),
    };
    let (field, element) = list_field(kind, name)?;
    if live.is_empty() && unwanted.is_empty() {
        return Ok(());
    }
    match Elements::of(&[Some(live), Some(&unwanted)])? {
        Elements::Scalars => live.retain(|item| !unwanted.contains(item)),
        Elements::Objects => {
            *live = merge_and_order(std::mem::take(live), unwanted, element, field.merge_key)?
        }
    }
    Ok(())
}

fn merge_and_order(
    live: Vec<Value>,
    patch: Vec<Value>,
    element: &Kind,
    key: Option<&str>,
) -> Result<Vec<Value>, StatusError> {
    merge_list(live, patch, element, key).map(|(merged, _)| merged)
}

/// Merges two lists and puts the patch's elements into the patch's order. The second list is what a `$setElementOrder`
/// takes for the order on the server.
fn merge_list(
    live: Vec<Value>,
    patch: Vec<Value>,
    element: &Kind,
    key: Option<&str>,
) -> Result<(Vec<Value>, Vec<Value>), StatusError> {
    if live.is_empty() && patch.is_empty() {
        return Ok((live, Vec::new()));
    }
    let elements = Elements::of(&[Some(&live), Some(&patch)])?;
    let key = match (elements, key) {
        (Elements::Scalars, _) => {
            let mut merged: Vec<Value> = Vec::new();
            for item in live.iter().chain(&patch) {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            let ordered = element_order::arrange(merged, &patch, &live, elements, key)?;
            return Ok((ordered, live));
        }
        (Elements::Objects, Some(key)) => key,
        (Elements::Objects, None) => {
            let kind = go_kind(element);
            return Err(internal(format!(
                "cannot merge lists without merge key for {kind}"
            )));
        }
    };
    let mut server_order = ServerOrder::new(&live);
    let (live, patch) = apply_directives(live, patch, key, &mut server_order)?;
    let mut merged = live.clone();
    for item in &patch {
        let value = merge_value(item, key)?;
        match position(&merged, key, value)? {
            Some(at) => {
                if let (Value::Object(live), Value::Object(item)) = (merged[at].take(), item.clone()) {
                    merged[at] = Value::Object(merge_object(live, item, element)?);
                }
            }
            None => {
                server_order.push(item);
                merged.push(item.clone());
            }
        }
    }
    let ordered = element_order::arrange(merged, &patch, &live, elements, Some(key))?;
    Ok((ordered, server_order.into()))
}

/// Carries out the elements with a `$patch`, and takes them out of the patch: `delete` takes out of the live list what has
/// the same key, `replace` all.
fn apply_directives(
    mut live: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    server_order: &mut ServerOrder,
) -> Result<(Vec<Value>, Vec<Value>), StatusError> {
    let mut plain = Vec::new();
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = merge_value(&item, key)?;
                while let Some(at) = position(&live, key, value)? {
                    live.remove(at);
                    server_order.remove(at);
                }
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(internal("merging lists cannot yet be specified in the patch")),
            _ => return Err(unknown_directive(item.as_object().unwrap_or(&Map::new()))),
        }
    }
    if replace {
        // The API server takes the patch for the live list then, and nothing for the patch.
        return Ok((plain, Vec::new()));
    }
    Ok((live, plain))
}

/// A field of a type; Go's JSON forgives the case of letters.
fn field(kind: &Kind, name: &str) -> Result<&'static Field, StatusError> {
    let Kind::Struct(type_name) = kind else {
        return Err(internal(format!(
            "merging an object in json but data type is not struct, instead is: {}",
            go_kind(kind)
        )));
    };
    let r#type = schema::named(type_name);
    r#type
        .field(name)
        .or_else(|| r#type.fields.iter().find(|f| f.name.eq_ignore_ascii_case(name)))
        .ok_or_else(|| {
            let go_name = type_name.rsplit('.').next().unwrap_or(type_name);
            internal(format!(
                "unable to find api field in struct {go_name} for the json field {name:?}"
            ))
        })
}

/// A field that is a list, and what its elements are.
fn list_field(kind: &Kind, name: &str) -> Result<(&'static Field, &'static Kind), StatusError> {
    let field = field(kind, name)?;
    match &field.kind {
        Kind::List(element) => Ok((field, element)),
        // Go takes what a pointer points to for an element.
        kind if field.pointer => Ok((field, kind)),
        _ => Err(internal(format!(
            "expected slice or array type, but got: {}",
            go_kind(kind)
        ))),
    }
}

fn go_kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::String(_) => "string",
        Kind::Bool => "bool",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Bytes | Kind::List(_) => "slice",
        Kind::Map(_) => "map",
        Kind::Time | Kind::MicroTime | Kind::Quantity | Kind::IntOrString => "struct",
        Kind::Raw | Kind::Struct(_) => "struct",
    }
}

/// `None` for a value that is itself a directive; else without those within.
fn undirected(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => Some(Value::Object(
            map.into_iter()
                .filter_map(|(key, value)| Some((key, undirected(value)?)))
                .collect(),
        )),
        Value::Array(list) => Some(Value::Array(list.into_iter().filter_map(undirected).collect())),
        other => Some(other),
    }
}

/// Without the fields that are null; list elements stay.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

fn list(value: Value) -> Result<Vec<Value>, StatusError> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(internal(format!(
            "expected a []interface {{}}, but received a {}",
            go_interface(&other)
        ))),
    }
}

fn unknown_directive(patch: &Object) -> StatusError {
    let directive = patch.get(DIRECTIVE).unwrap_or(&Value::Null);
    internal(format!(
        "unknown patch type: {} in map: {}",
        go_print(directive),
        go_print(&Value::Object(patch.clone()))
    ))
}

/// What the API server has no better code for.
pub(super) fn internal(message: impl Into<String>) -> StatusError {
    StatusError::new(500, "", message)
}

#[cfg(test)]
mod tests {
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
}
