//! Unknown fields.

use serde_json::Value;

use super::table::{Kind, Type};

impl Type {
    /// The unknown fields of an object, as paths: `spec.containers[0].bogus`.
    pub(crate) fn unknown_fields(&self, object: &Value) -> Vec<String> {
        let mut search = Search::default();
        search.object(self, object);
        search.found
    }
}

enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

#[derive(Default)]
struct Search<'a> {
    path: Vec<Step<'a>>,
    found: Vec<String>,
}

impl<'a> Search<'a> {
    fn object(&mut self, r#type: &Type, object: &'a Value) {
        for (name, value) in object.as_object().into_iter().flatten() {
            self.path.push(Step::Name(name));
            match r#type.field(name) {
                Some(field) => self.value(&field.kind, value),
                None => self.found.push(self.path()),
            }
            self.path.pop();
        }
    }

    fn value(&mut self, kind: &Kind, value: &'a Value) {
        match (kind, value) {
            (Kind::Struct(name), _) => self.object(super::named(name), value),
            (Kind::List(element), Value::Array(list)) => {
                for (i, value) in list.iter().enumerate() {
                    self.path.push(Step::Index(i));
                    self.value(element, value);
                    self.path.pop();
                }
            }
            (Kind::Map(element), Value::Object(map)) => {
                for (key, value) in map {
                    self.path.push(Step::Name(key));
                    self.value(element, value);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Name(name) if path.is_empty() => path.push_str(name),
                Step::Name(name) => path.push_str(&format!(".{name}")),
                Step::Index(i) => path.push_str(&format!("[{i}]")),
            }
        }
        path
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
