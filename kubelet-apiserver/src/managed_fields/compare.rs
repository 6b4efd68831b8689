//! The fields that differ between two objects, and the fields of one object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::field_set::{Element, FieldSet};
use super::form::Form;

/// The differences between two objects.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Comparison {
    fn put(&mut self, element: Element, below: Comparison) {
        self.added.put(element.clone(), below.added);
        self.modified.put(element.clone(), below.modified);
        self.removed.put(element, below.removed);
    }

    fn leaf(old: Option<&Value>, new: Option<&Value>) -> Self {
        let mut changes = Comparison::default();
        match (old, new) {
            (None, _) => changes.added.member = true,
            (_, None) => changes.removed.member = true,
            (Some(old), Some(new)) => changes.modified.member = old != new,
        }
        changes
    }
}

/// Compares two values; `None` is a missing value, which is not null.
pub(super) fn compare(form: &Form, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    if old == new {
        return Comparison::default();
    }
    let mut changes = match form {
        Form::Leaf => return Comparison::leaf(old, new),
        Form::Struct(_) | Form::Map(_) => {
            let old = old.and_then(Value::as_object).filter(|map| !map.is_empty());
            let new = new.and_then(Value::as_object).filter(|map| !map.is_empty());
            if old.is_none() && new.is_none() {
                None
            } else {
                let names: BTreeSet<&String> =
                    [old, new].into_iter().flatten().flat_map(|m| m.keys()).collect();
                let mut changes = Comparison::default();
                for name in names {
                    let (old, new) = (old.and_then(|m| m.get(name)), new.and_then(|m| m.get(name)));
                    if let Some(form) = form.child(name) {
                        changes.put(Element::field(name), compare(&form, old, new));
                    }
                }
                Some(changes)
            }
        }
        Form::Set | Form::Keyed(..) => {
            let old = old.and_then(Value::as_array).filter(|list| !list.is_empty());
            let new = new.and_then(Value::as_array).filter(|list| !list.is_empty());
            if old.is_none() && new.is_none() {
                None
            } else {
                Some(compare_lists(form, old, new))
            }
        }
    }
    // A value that is empty on both sides is a leaf.
    .unwrap_or_else(|| Comparison::leaf(old, new));
    if old.is_none() {
        changes.added.member = true;
    } else if new.is_none() {
        changes.removed.member = true;
    }
    changes
}

fn compare_lists(form: &Form, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>) -> Comparison {
    let mut elements: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old.into_iter().flatten() {
        if let Ok(element) = form.element(item) {
            elements.entry(element).or_default().0.push(item);
        }
    }
    for item in new.into_iter().flatten() {
        if let Ok(element) = form.element(item) {
            elements.entry(element).or_default().1.push(item);
        }
    }
    let below = form.child("").unwrap_or(Form::Leaf);
    let mut changes = Comparison::default();
    for (element, (old, new)) in elements {
        let change = match (&old[..], &new[..]) {
            (old @ ([] | [_]), new @ ([] | [_])) => {
                compare(&below, old.first().copied(), new.first().copied())
            }
            // Elements that occur more than once are owned together.
            ([_, _, ..], [_, _, ..]) => Comparison {
                modified: FieldSet {
                    member: old != new,
                    ..FieldSet::default()
                },
                ..Comparison::default()
            },
            ([_, _, ..], new) => {
                let mut change = match new.first() {
                    Some(new) => compare(&below, None, Some(new)),
                    None => Comparison::default(),
                };
                change.removed.member = true;
                change
            }
            (old, _) => {
                let mut change = match old.first() {
                    Some(old) => compare(&below, Some(old), None),
                    None => Comparison::default(),
                };
                change.added.member = true;
                change
            }
        };
        changes.put(element, change);
    }
    changes
}

/// The fields of an applied object.
pub(super) fn fields(form: &Form, value: &Value) -> FieldSet {
    match (form, value) {
        (Form::Leaf, _) => FieldSet::itself(),
        (Form::Struct(_) | Form::Map(_), Value::Object(map)) => {
            let mut set = FieldSet::default();
            for (name, value) in map {
                let Some(below) = form.child(name) else {
                    continue;
                };
                let mut child = fields(&below, value);
                let empty = value.is_null() || value.as_object().is_some_and(|map| map.is_empty());
                child.member |= empty || !form.has_field(name);
                set.put(Element::field(name), child);
            }
            set
        }
        (Form::Set | Form::Keyed(..), Value::Array(list)) => {
            let mut set = FieldSet::default();
            let below = form.child("").unwrap_or(Form::Leaf);
            for item in list {
                let Ok(element) = form.element(item) else {
                    continue;
                };
                let child = if set.children.contains_key(&element) {
                    FieldSet::itself()
                } else {
                    let mut child = fields(&below, item);
                    child.member = true;
                    child
                };
                set.put(element, child);
            }
            set
        }
        _ => FieldSet::default(),
    }
}
