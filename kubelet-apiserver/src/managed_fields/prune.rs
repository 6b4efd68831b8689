//! Removes what was applied before and is not applied any more.

use serde_json::{Map, Value};

use super::compare::fields;
use super::entries::Managed;
use super::field_set::{Element, FieldSet};
use super::form::Form;

/// Removes from a merged object the fields that are in `last` and that no manager owns now.
pub(super) fn prune(form: &Form, merged: &Value, last: &FieldSet, managed: &Managed) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let last = with_named_fields(form, last);
    let owned = managed
        .owners
        .values()
        .fold(FieldSet::default(), |all, owner| all.union(&owner.fields));
    let owned = with_named_fields(form, &owned);
    let all = fields_of(form, merged);

    // Fields of other managers come back, with their parents.
    let bare = remove(form, merged, &last);
    let kept = fields_of(form, &bare).union(&owned);
    let pruned = remove(form, merged, &all.difference(&kept));
    // Fields that were removed with their parent, but that the manager did not own, come back too.
    let gone = all.difference(&fields_of(form, &pruned));
    remove(form, merged, &gone.intersection(&last))
}

fn fields_of(form: &Form, value: &Value) -> FieldSet {
    with_named_fields(form, &fields(form, value))
}

/// Adds to the set the parents of its members, which a set leaves out.
fn with_named_fields(form: &Form, set: &FieldSet) -> FieldSet {
    let mut full = FieldSet {
        member: set.member,
        ..FieldSet::default()
    };
    for (element, child) in &set.children {
        let name = element.name().unwrap_or_default();
        let below = form.child(name).unwrap_or(Form::Leaf);
        let mut child = with_named_fields(&below, child);
        child.member |= !child.children.is_empty() && form.has_field(name);
        full.put(element.clone(), child);
    }
    full
}

/// The value without the fields of a set; null if it becomes empty.
fn remove(form: &Form, value: &Value, set: &FieldSet) -> Value {
    match (form, value) {
        (Form::Struct(_) | Form::Map(_), Value::Object(map)) => {
            let mut left = Map::new();
            let mut matched = false;
            for (name, value) in map {
                let below = form.child(name).unwrap_or(Form::Leaf);
                if let Some(value) = removed(&below, value, set, &Element::field(name), &mut matched) {
                    left.insert(name.clone(), value);
                }
            }
            if left.is_empty() && !matched {
                return Value::Null;
            }
            Value::Object(left)
        }
        (Form::Set | Form::Keyed(..), Value::Array(list)) => {
            let below = form.child("").unwrap_or(Form::Leaf);
            let mut left = Vec::new();
            let mut matched = false;
            for item in list {
                match form.element(item) {
                    Ok(element) => left.extend(removed(&below, item, set, &element, &mut matched)),
                    Err(_) => left.push(item.clone()),
                }
            }
            if left.is_empty() && !matched {
                return Value::Null;
            }
            Value::Array(left)
        }
        (Form::Leaf, Value::Object(_) | Value::Array(_)) => Value::Null,
        (Form::Leaf, scalar) => scalar.clone(),
        _ => Value::Null,
    }
}

/// The rest of the value at one step; `None` if it is in the set.
fn removed(form: &Form, value: &Value, set: &FieldSet, at: &Element, matched: &mut bool) -> Option<Value> {
    let Some(below) = set.children.get(at) else {
        return Some(value.clone());
    };
    if below.member {
        return None;
    }
    *matched = true;
    // A value that only loses its children stays, empty.
    Some(match (remove(form, value, below), value) {
        (Value::Null, Value::Object(_)) => Value::Object(Map::new()),
        (Value::Null, Value::Array(_)) => Value::Array(Vec::new()),
        (left, _) => left,
    })
}
