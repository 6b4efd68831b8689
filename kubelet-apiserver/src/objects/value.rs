//! [`Fields`]: access to decoded objects, whose types have been checked. An unset field reads as its zero value.

use serde_json::{Map, Value};

pub(crate) trait Fields {
    /// A string; empty if unset.
    fn text(&self, key: &str) -> &str;
    /// A list; empty if unset.
    fn list(&self, key: &str) -> &[Value];
    /// The entries of an object; none if unset.
    fn entries(&self, key: &str) -> impl Iterator<Item = (&String, &Value)>;
    /// A whole number.
    fn number(&self, key: &str) -> Option<i64>;
    /// A boolean; false if unset.
    fn flag(&self, key: &str) -> bool;
    /// Whether the field is set.
    fn has(&self, key: &str) -> bool;
    /// The field, if it is set.
    fn field(&self, key: &str) -> Option<&Value>;
    /// The list, to change it; empty if unset.
    fn list_mut(&mut self, key: &str) -> &mut [Value];
    /// The object, to change it. It is created if it is unset or no object.
    fn fields_mut(&mut self) -> &mut Map<String, Value>;
    /// Sets a string if it is unset or empty.
    fn default_text(&mut self, key: &str, default: &str);
    /// Sets a field if it is unset.
    fn default_value(&mut self, key: &str, default: impl Into<Value>);
}

impl Fields for Value {
    fn text(&self, key: &str) -> &str {
        self[key].as_str().unwrap_or_default()
    }

    fn list(&self, key: &str) -> &[Value] {
        self[key].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn entries(&self, key: &str) -> impl Iterator<Item = (&String, &Value)> {
        self[key].as_object().into_iter().flatten()
    }

    fn number(&self, key: &str) -> Option<i64> {
        self[key].as_i64()
    }

    fn flag(&self, key: &str) -> bool {
        self[key] == true
    }

    fn has(&self, key: &str) -> bool {
        !self[key].is_null()
    }

    fn field(&self, key: &str) -> Option<&Value> {
        self.get(key).filter(|value| !value.is_null())
    }

    fn list_mut(&mut self, key: &str) -> &mut [Value] {
        match self.get_mut(key) {
            Some(Value::Array(list)) => list,
            _ => &mut [],
        }
    }

    fn fields_mut(&mut self) -> &mut Map<String, Value> {
        if !self.is_object() {
            *self = Value::Object(Map::new());
        }
        match self {
            Value::Object(fields) => fields,
            _ => unreachable!("made an object above"),
        }
    }

    fn default_text(&mut self, key: &str, default: &str) {
        if self.text(key).is_empty() {
            self.fields_mut().insert(key.into(), default.into());
        }
    }

    fn default_value(&mut self, key: &str, default: impl Into<Value>) {
        if !self.has(key) {
            self.fields_mut().insert(key.into(), default.into());
        }
    }
}
