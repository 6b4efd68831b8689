//! [`Form`]: whether a value is owned as a whole or in parts.

use serde_json::Value;

use super::super::schema::{Field, Kind, Topology, Type};
use super::field_set::Element;

/// How a value is owned.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// Scalars, and lists, maps and objects that are owned as a whole.
    Leaf,
    /// An object, field by field.
    Struct(&'static Type),
    /// A map, key by key.
    Map(&'static Kind),
    /// A list of scalars, each at most once.
    Set,
    /// A list of objects with these fields as keys.
    Keyed(&'static [&'static str], &'static Kind),
}

impl Form {
    pub(super) fn of_field(field: &'static Field) -> Self {
        match (&field.kind, &field.topology) {
            (Kind::List(_), Topology::Set) => Form::Set,
            (Kind::List(element), Topology::Map(keys)) => Form::Keyed(keys, element),
            (Kind::Map(_), Topology::Atomic) => Form::Leaf,
            (kind, _) => Form::of(kind),
        }
    }

    /// The form of an element whose type says nothing more.
    pub(super) fn of(kind: &'static Kind) -> Self {
        match kind {
            Kind::Struct(name) => {
                let r#type = super::super::schema::named(name);
                if r#type.atomic {
                    Form::Leaf
                } else {
                    Form::Struct(r#type)
                }
            }
            Kind::Map(element) => Form::Map(element),
            _ => Form::Leaf,
        }
    }

    /// The form of what is below; `None` for a field that the type doesn't have.
    pub(super) fn child(&self, name: &str) -> Option<Form> {
        match self {
            Form::Struct(r#type) => r#type.field(name).map(Form::of_field),
            Form::Map(element) => Some(Form::of(element)),
            Form::Keyed(_, element) => Some(Form::of(element)),
            Form::Set | Form::Leaf => Some(Form::Leaf),
        }
    }

    /// Whether it is an object with a field of this name; keys of maps are not fields.
    pub(super) fn has_field(&self, name: &str) -> bool {
        matches!(self, Form::Struct(r#type) if r#type.field(name).is_some())
    }

    /// The key of a list element.
    ///
    /// # Errors
    ///
    /// The missing key, in the API server's words.
    pub(super) fn element(&self, item: &Value) -> Result<Element, String> {
        match self {
            Form::Keyed(keys, element) => keyed(keys, element, item),
            _ => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".into())
                }
                scalar => Ok(Element::value(scalar)),
            },
        }
    }
}

fn keyed(keys: &[&'static str], element: &'static Kind, item: &Value) -> Result<Element, String> {
    let item = match item {
        Value::Object(item) => item,
        Value::Null => return Err("associative list with keys may not have a null element".into()),
        _ => return Err("associative list with keys may not have non-map elements".into()),
    };
    let default = |key: &str| match element {
        Kind::Struct(name) => super::super::schema::named(name).field(key)?.default,
        _ => None,
    };
    let mut found: Vec<(&str, Value)> = keys
        .iter()
        .filter_map(|key| {
            let value = item.get(*key).cloned().or_else(|| default(key).map(Value::from));
            Some((*key, value?))
        })
        .collect();
    if found.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values \
             for any key fields)",
            keys.join(" ")
        ));
    }
    found.sort_by_key(|(key, _)| *key);
    Ok(Element::key(&found))
}
