//! Strategic merge patch: lists merge by keys, and directives do what merging cannot.

use serde_json::{Map, Value};

use super::super::schema::{self, Field, Kind, Type, json_type};
use super::super::status_error::StatusError;
use super::element_order::{self, Elements, ServerOrder, merge_value, position};
use super::go::{go_interface, go_print};
use super::{DIRECTIVE, internal};

/// `$deleteFromPrimitiveList/<field>`: the scalars to remove from a list.
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
/// `$setElementOrder/<field>`: the order of a list's elements.
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
/// `$retainKeys`: the only fields that an object keeps.
const RETAIN_KEYS: &str = "$retainKeys";

const BAD_PRIMITIVE_LIST: &str = "invalid patch format of primitive list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
const BAD_SET_ELEMENT_ORDER: &str = "invalid patch format of setElementOrder list";

/// Merges a patch into an object of a type.
///
/// # Errors
///
/// 400 for a malformed patch or directive, 422 for lists of lists, and 500, as from the API server, for a patch that
/// contradicts the types, lacks a merge key, or has an unknown `$patch`.
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

/// The field of a directive such as `$setElementOrder/conditions`; `None` if the key is no such directive.
fn directed<'a>(key: &'a str, directive: &str, malformed: &str) -> Result<Option<&'a str>, StatusError> {
    let Some(rest) = key.strip_prefix(directive) else {
        return Ok(None);
    };
    match rest.strip_prefix('/') {
        Some(field) => Ok(Some(field)),
        None => Err(StatusError::bad_request(malformed)),
    }
}

/// `$retainKeys`: removes the fields of the original that the list does not name. The patch may set no other fields.
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

/// `$setElementOrder/<field>`: merges these lists and orders their elements. The patch's values for these lists are
/// then done.
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
        // The directive has no effect if there is no list.
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

/// Merges two lists and orders the patch's elements as in the patch. The second list has the server's order for
/// `$setElementOrder`.
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

/// Applies the elements with a `$patch`, and removes them from the patch. `delete` removes the live elements with the
/// same key, `replace` removes all live elements.
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
        // The API server then uses the patch as the live list, and an empty patch.
        return Ok((plain, Vec::new()));
    }
    Ok((live, plain))
}

/// A field of a type; Go's JSON ignores case.
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

/// A list field and the type of its elements.
fn list_field(kind: &Kind, name: &str) -> Result<(&'static Field, &'static Kind), StatusError> {
    let field = field(kind, name)?;
    match &field.kind {
        Kind::List(element) => Ok((field, element)),
        // Go treats the target of a pointer as the element.
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

/// `None` for a value that is itself a directive; otherwise the value without directives.
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

/// The object without null fields; list elements stay.
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

#[cfg(test)]
mod tests;
