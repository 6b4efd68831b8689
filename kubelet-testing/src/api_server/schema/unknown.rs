//! Fields that a type doesn't have.

use serde_json::Value;

use super::table::{Kind, Type};

impl Type {
    /// The fields of an object that the type doesn't have, as paths: `spec.containers[0].bogus`.
    pub(crate) fn unknown_fields(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        self.walk(object, "", &mut found);
        found
    }

    fn walk(&self, object: &Value, path: &str, found: &mut Vec<String>) {
        let Some(object) = object.as_object() else {
            return;
        };
        for (name, value) in object {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            match self.field(name) {
                Some(field) => walk(&field.kind, value, &path, found),
                None => found.push(path),
            }
        }
    }
}

fn walk(kind: &Kind, value: &Value, path: &str, found: &mut Vec<String>) {
    match (kind, value) {
        (Kind::Struct(name), Value::Object(_)) => super::named(name).walk(value, path, found),
        (Kind::List(element), Value::Array(list)) => {
            for (i, value) in list.iter().enumerate() {
                walk(element, value, &format!("{path}[{i}]"), found);
            }
        }
        (Kind::Map(element), Value::Object(map)) => {
            for (key, value) in map {
                walk(element, value, &format!("{path}.{key}"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn at_every_depth() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "bogus": 1,
            "metadata": {"name": "a", "labels": {"any": "key"}, "Name": "b"},
            "spec": {"containers": [{"name": "c"}, {"name": "d", "bogus": {}, "env": [{"valu": "x"}]}]},
        });
        let mut found = super::super::named("Pod").unknown_fields(&pod);
        found.sort();
        assert_eq!(
            found,
            [
                "bogus",
                "metadata.Name",
                "spec.containers[1].bogus",
                "spec.containers[1].env[0].valu"
            ]
        );
    }
}
