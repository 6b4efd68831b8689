//! Validates an applied object against its type, with the messages of the API server's library.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::schema::{self, Field, Kind, Type};
use super::form::Form;

/// Returns what is wrong with an applied object: unknown fields, wrong types, list elements with missing or duplicate
/// keys.
pub(super) fn validate(r#type: &'static Type, applied: &Value) -> Result<(), String> {
    let mut faults = Vec::new();
    object(r#type, applied, "", &mut faults);
    match &faults[..] {
        [] => Ok(()),
        [only] => Err(only.clone()),
        faults => Err(format!("errors:\n  {}", faults.join("\n  "))),
    }
}

fn object(r#type: &'static Type, value: &Value, path: &str, faults: &mut Vec<String>) {
    let map = match value {
        Value::Null => return,
        Value::Object(map) => map,
        other => return fault(faults, path, &format!("expected map, got &{{{}}}", plain(other))),
    };
    for (name, value) in map {
        let path = format!("{path}.{name}");
        let Some(field) = r#type.field(name) else {
            return fault(faults, &path, "field not declared in schema");
        };
        match &field.kind {
            Kind::List(element) => list(field, element, value, &path, faults),
            kind => other(kind, value, &path, faults),
        }
    }
}

fn list(field: &'static Field, element: &'static Kind, value: &Value, path: &str, faults: &mut Vec<String>) {
    let list = match value {
        Value::Null => return,
        Value::Array(list) => list,
        other => return fault(faults, path, &format!("expected list, got &{{{}}}", plain(other))),
    };
    let form = Form::of_field(field);
    let mut seen = BTreeSet::new();
    for (i, item) in list.iter().enumerate() {
        let step = match form {
            Form::Leaf => format!("[{i}]"),
            _ => match form.element(item) {
                Ok(found) => {
                    let step = found.display();
                    if !seen.insert(found) {
                        fault(faults, path, &format!("duplicate entries for key {step}"));
                    }
                    step
                }
                Err(why) => return fault(faults, path, &format!("element {i}: {why}")),
            },
        };
        other(element, item, &format!("{path}{step}"), faults);
    }
}

fn other(kind: &'static Kind, value: &Value, path: &str, faults: &mut Vec<String>) {
    match (kind, value) {
        (_, Value::Null) | (Kind::Raw, _) => {}
        (Kind::Struct(name), value) => object(schema::named(name), value, path, faults),
        (Kind::Map(element), Value::Object(map)) => {
            for (name, value) in map {
                other(element, value, &format!("{path}.{name}"), faults);
            }
        }
        (Kind::Map(_), value) => fault(faults, path, &format!("expected map, got &{{{}}}", plain(value))),
        (Kind::List(element), Value::Array(list)) => {
            for (i, item) in list.iter().enumerate() {
                other(element, item, &format!("{path}[{i}]"), faults);
            }
        }
        (Kind::List(_), value) => fault(faults, path, &format!("expected list, got &{{{}}}", plain(value))),
        (Kind::String(_) | Kind::Bytes, Value::String(_)) | (Kind::Bool, Value::Bool(_)) => {}
        (Kind::Int32 | Kind::Int64, Value::Number(_)) => {}
        (Kind::String(_) | Kind::Bytes, value) => {
            let got = format!("expected string, got &value.valueUnstructured{{Value:{value}}}");
            fault(faults, path, &got);
        }
        (Kind::Bool, value) => fault(
            faults,
            path,
            &format!("expected boolean, got &{{{}}}", plain(value)),
        ),
        (Kind::Int32 | Kind::Int64, value) => {
            let got = go_type(value);
            fault(
                faults,
                path,
                &format!("expected numeric (int or float), got {got}"),
            );
        }
        (_, Value::Array(_) | Value::Object(_)) => {
            fault(
                faults,
                path,
                &format!("expected any scalar, got &{{{}}}", plain(value)),
            );
        }
        _ => {}
    }
}

fn fault(faults: &mut Vec<String>, path: &str, what: &str) {
    if path.is_empty() {
        faults.push(what.to_string());
    } else {
        faults.push(format!("{path}: {what}"));
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
