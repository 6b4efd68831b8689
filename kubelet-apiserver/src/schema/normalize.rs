//! Objects as the API server writes them.

use serde_json::{Map, Value, json};

use super::table::{Field, Kind, Type};
use super::{go_time, quantity};

impl Type {
    /// Brings an object into the form in which the API server writes it. Unknown fields and empty optional fields are
    /// left out, required fields are added, times are in UTC, and quantities have their shortest form. Values of a
    /// wrong type stay as they are.
    pub(crate) fn normalize(&self, object: &mut Value) {
        if object.is_null() {
            *object = json!({});
        }
        let Some(map) = object.as_object_mut() else {
            return;
        };
        map.retain(|name, _| self.field(name).is_some());
        for field in &self.fields {
            let value = map.remove(field.name).unwrap_or_default();
            if let Some(value) = field.normalized(value) {
                map.insert(field.name.to_string(), value);
            }
        }
    }
}

impl Field {
    /// `None` for a field that is not written.
    fn normalized(&self, value: Value) -> Option<Value> {
        if value.is_null() {
            return self.always.then(|| self.zero());
        }
        let mut value = value;
        normalize(&self.kind, &mut value);
        if is_empty_container(&self.kind, &value) {
            // An empty list asks to remove all managed fields.
            if self.name == "managedFields" {
                return Some(value);
            }
            return self.always.then_some(Value::Null);
        }
        let optional = !self.always && !self.pointer && !matches!(self.kind, Kind::Struct(_));
        if optional && value == zero(&self.kind) {
            return None;
        }
        Some(value)
    }

    fn zero(&self) -> Value {
        if self.pointer {
            Value::Null
        } else {
            zero(&self.kind)
        }
    }
}

/// Empty lists, maps and bytes are not stored.
fn is_empty_container(kind: &Kind, value: &Value) -> bool {
    match (kind, value) {
        (Kind::List(_), Value::Array(list)) => list.is_empty(),
        (Kind::Map(_), Value::Object(map)) => map.is_empty(),
        (Kind::Bytes, Value::String(text)) => text.is_empty(),
        _ => false,
    }
}

fn zero(kind: &Kind) -> Value {
    match kind {
        Kind::String(_) => json!(""),
        Kind::Bool => json!(false),
        Kind::Int32 | Kind::Int64 | Kind::IntOrString => json!(0),
        Kind::Quantity => json!("0"),
        Kind::Bytes | Kind::Time | Kind::MicroTime | Kind::Raw | Kind::List(_) | Kind::Map(_) => Value::Null,
        Kind::Struct(name) => {
            let mut object = Value::Object(Map::new());
            super::named(name).normalize(&mut object);
            object
        }
    }
}

fn normalize(kind: &Kind, value: &mut Value) {
    match (kind, value) {
        (Kind::Struct(name), value) => super::named(name).normalize(value),
        (Kind::List(element), Value::Array(list)) => {
            list.iter_mut()
                .for_each(|value| normalize_element(element, value));
        }
        (Kind::Map(element), Value::Object(map)) => {
            map.values_mut()
                .for_each(|value| normalize_element(element, value));
        }
        (Kind::Time | Kind::MicroTime, value) => {
            let micro = *kind == Kind::MicroTime;
            if let Some(Ok(at)) = value.as_str().map(|text| go_time::parse(text, micro)) {
                *value = json!(go_time::format(at, micro));
            }
        }
        (Kind::Quantity, value) => {
            let text = match &*value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if let Ok(shortest) = quantity::canonical(&text) {
                *value = json!(shortest);
            }
        }
        _ => {}
    }
}

/// In a list or map, null becomes the element's zero value.
fn normalize_element(kind: &Kind, value: &mut Value) {
    if value.is_null() {
        *value = zero(kind);
    } else {
        normalize(kind, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(name: &str, mut object: Value) -> Value {
        super::super::named(name).normalize(&mut object);
        object
    }

    #[test]
    fn empty_optional_fields_go_and_required_ones_come() {
        let pod = json!({
            "metadata": {"name": "a", "labels": {}, "finalizers": [], "creationTimestamp": null, "generation": 0},
            "spec": {"containers": [{"name": "c", "image": "", "tty": false}], "priority": 0, "bogus": 1, "volumes": null},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        assert_eq!(
            normalized("Pod", pod),
            json!({
                "metadata": {"name": "a"},
                "spec": {"containers": [{"name": "c", "resources": {}}], "priority": 0},
                "status": {"conditions": [
                    {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null},
                ]},
            })
        );
        assert_eq!(
            normalized("Pod", json!({})),
            json!({"metadata": {}, "spec": {"containers": null}, "status": {}})
        );
        assert_eq!(
            normalized("TokenRequest", json!({"spec": {"expirationSeconds": 0}})),
            json!({
                "metadata": {},
                "spec": {"audiences": null, "boundObjectRef": null, "expirationSeconds": 0},
                "status": {"expirationTimestamp": null, "token": ""},
            })
        );
    }

    #[test]
    fn values_take_their_one_form() {
        let lease = json!({"metadata": {}, "spec": {"renewTime": "2026-01-01T02:00:00.5000000+02:00"}});
        assert_eq!(
            normalized("Lease", lease),
            json!({"metadata": {}, "spec": {"renewTime": "2026-01-01T02:00:00.5000000+02:00"}}),
            "seven digits are wrong"
        );
        let lease = json!({"metadata": {}, "spec": {"renewTime": "2026-01-01T02:00:00.500000+02:00"}});
        assert_eq!(
            normalized("Lease", lease),
            json!({"metadata": {}, "spec": {"renewTime": "2026-01-01T00:00:00.500000Z"}})
        );
        let resources = json!({"limits": {"cpu": 2, "memory": "1024Mi", "pods": null}});
        assert_eq!(
            normalized("ResourceRequirements", resources),
            json!({"limits": {"cpu": "2", "memory": "1Gi", "pods": "0"}})
        );
    }
}
