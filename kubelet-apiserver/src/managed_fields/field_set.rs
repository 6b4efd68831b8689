//! [`FieldSet`]: a set of fields, as a tree in the shape of `fieldsV1`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One step of a path, written as in `fieldsV1`: `f:image`, `k:{"name":"c"}`, `v:"example.com/f"`, `i:0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Element(String);

impl Element {
    pub(super) fn field(name: &str) -> Self {
        Element(format!("f:{name}"))
    }

    pub(super) fn value(scalar: &Value) -> Self {
        Element(format!("v:{}", escaped(&scalar.to_string())))
    }

    /// `pairs` in the order of their names.
    pub(super) fn key(pairs: &[(&str, Value)]) -> Self {
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{}:{}", Value::from(*name), escaped(&value.to_string())))
            .collect();
        Element(format!("k:{{{}}}", pairs.join(",")))
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, content) = text.split_at_checked(2)?;
        match kind {
            "f:" => Some(Element(text.into())),
            "i:" => content.parse::<i64>().ok().map(|_| Element(text.into())),
            "v:" => serde_json::from_str(content).ok().map(|v| Element::value(&v)),
            "k:" => {
                let pairs: Map<String, Value> = serde_json::from_str(content).ok()?;
                let mut pairs: Vec<(&str, Value)> =
                    pairs.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
                pairs.sort_by_key(|(name, _)| *name);
                Some(Element::key(&pairs))
            }
            _ => None,
        }
    }

    /// The name, if the step is to a field.
    pub(super) fn name(&self) -> Option<&str> {
        self.0.strip_prefix("f:")
    }

    /// As messages show it: `.image`, `[name="c"]`, `[="x"]`, `[0]`.
    pub(super) fn display(&self) -> String {
        let content = &self.0[2..];
        match &self.0[..2] {
            "f:" => format!(".{content}"),
            "k:" => {
                let pairs: Map<String, Value> = serde_json::from_str(content).unwrap_or_default();
                let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("[{}]", pairs.join(","))
            }
            "v:" => match serde_json::from_str::<Value>(content) {
                Ok(value) => format!("[={value}]"),
                Err(_) => format!("[={content}]"),
            },
            _ => format!("[{content}]"),
        }
    }
}

/// As Go writes JSON, safe to stand in HTML.
fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// A set of fields: a node is in the set or not, and so are those below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    /// Whether the field that the node stands for is itself in the set.
    pub(super) member: bool,
    pub(super) children: BTreeMap<Element, FieldSet>,
}

impl FieldSet {
    /// The one field that the node stands for.
    pub(super) fn itself() -> Self {
        FieldSet {
            member: true,
            children: BTreeMap::new(),
        }
    }

    pub(super) fn of(paths: &[&[&str]]) -> Self {
        let mut set = FieldSet::default();
        for path in paths {
            set.insert(path);
        }
        set
    }

    /// Adds a path of field names.
    pub(super) fn insert(&mut self, path: &[&str]) {
        match path {
            [] => self.member = true,
            [name, rest @ ..] => self
                .children
                .entry(Element::field(name))
                .or_default()
                .insert(rest),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Puts a set below this one, if there is anything in it.
    pub(super) fn put(&mut self, element: Element, set: FieldSet) {
        if !set.is_empty() {
            self.children.insert(element, set);
        }
    }

    pub(super) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut union = self.clone();
        union.member |= other.member;
        for (element, theirs) in &other.children {
            let ours = union.children.entry(element.clone()).or_default();
            *ours = ours.union(theirs);
        }
        union
    }

    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.combine(other, |ours, theirs| ours && theirs, false)
    }

    /// Without the fields of the other; what is below them stays.
    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        self.combine(other, |ours, theirs| ours && !theirs, true)
    }

    fn combine(&self, other: &FieldSet, keep: fn(bool, bool) -> bool, keep_unmatched: bool) -> FieldSet {
        let mut combined = FieldSet {
            member: keep(self.member, other.member),
            children: BTreeMap::new(),
        };
        for (element, ours) in &self.children {
            match other.children.get(element) {
                Some(theirs) => combined.put(element.clone(), ours.combine(theirs, keep, keep_unmatched)),
                None if keep_unmatched => combined.put(element.clone(), ours.clone()),
                None => {}
            }
        }
        combined
    }

    /// Without the fields of the other and all that is below them.
    pub(super) fn without(&self, other: &FieldSet) -> FieldSet {
        if other.member {
            return FieldSet::default();
        }
        let mut rest = FieldSet {
            member: self.member,
            children: BTreeMap::new(),
        };
        for (element, ours) in &self.children {
            match other.children.get(element) {
                Some(theirs) => rest.put(element.clone(), ours.without(theirs)),
                None => rest.put(element.clone(), ours.clone()),
            }
        }
        rest
    }

    /// All paths as messages show them, fields before what is below.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, path: &str, paths: &mut Vec<String>) {
        let below = |element: &Element| format!("{path}{}", element.display());
        for (element, _) in self.children.iter().filter(|(_, child)| child.member) {
            paths.push(below(element));
        }
        for (element, child) in &self.children {
            child.collect_paths(&below(element), paths);
        }
    }

    /// Reads `fieldsV1`; `None` for what cannot be read.
    pub(super) fn from_fields_v1(fields: &Value) -> Option<FieldSet> {
        let mut set = FieldSet::default();
        for (name, below) in fields.as_object()? {
            if name == "." {
                set.member = true;
                continue;
            }
            let mut child = FieldSet::from_fields_v1(below)?;
            // A node with nothing below stands for itself.
            child.member |= child.children.is_empty();
            set.put(Element::parse(name)?, child);
        }
        Some(set)
    }

    pub(super) fn to_fields_v1(&self) -> Value {
        let below = |(element, child): (&Element, &FieldSet)| {
            let mut fields = child.to_fields_v1();
            if child.member
                && !child.children.is_empty()
                && let Some(fields) = fields.as_object_mut()
            {
                fields.insert(".".into(), Value::Object(Map::new()));
            }
            (element.0.clone(), fields)
        };
        Value::Object(self.children.iter().map(below).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_v1_is_read_and_written() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {"v:\"example.com/f\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}},
        });
        let set = FieldSet::from_fields_v1(&fields).unwrap();
        assert_eq!(set.to_fields_v1(), fields);
        assert_eq!(
            set.paths(),
            [
                ".metadata.labels",
                ".metadata.finalizers[=\"example.com/f\"]",
                ".metadata.labels.app",
                ".spec.containers[name=\"c\"]",
                ".spec.containers[name=\"c\"].image",
            ]
        );
        assert_eq!(FieldSet::from_fields_v1(&json!({"spec": {}})), None);
        assert_eq!(FieldSet::from_fields_v1(&json!({"k:{": {}})), None);
        assert_eq!(FieldSet::from_fields_v1(&json!([])), None);
    }

    #[test]
    fn set_operations() {
        let a = FieldSet::of(&[&["a"], &["a", "b"], &["c", "d"]]);
        let b = FieldSet::of(&[&["a"], &["c", "e"]]);
        assert_eq!(
            a.union(&b),
            FieldSet::of(&[&["a"], &["a", "b"], &["c", "d"], &["c", "e"]])
        );
        assert_eq!(a.intersection(&b), FieldSet::of(&[&["a"]]));
        assert_eq!(a.difference(&b), FieldSet::of(&[&["a", "b"], &["c", "d"]]));
        assert_eq!(a.without(&b), FieldSet::of(&[&["c", "d"]]));
    }
}
