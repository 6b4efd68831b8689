//! Merges an applied object into the current one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::Element;
use super::form::Form;

/// Merges the applied value into the current one; `None` is a missing value.
pub(super) fn merge(form: &Form, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let whole = || applied.or(live).cloned();
    match form {
        Form::Leaf => whole(),
        Form::Struct(_) | Form::Map(_) => {
            let live = live.and_then(Value::as_object).filter(|map| !map.is_empty());
            let applied = applied.and_then(Value::as_object).filter(|map| !map.is_empty());
            if live.is_none() && applied.is_none() {
                return whole();
            }
            let both = || [live, applied].into_iter().flatten();
            let names: BTreeSet<&String> = both().flat_map(Map::keys).collect();
            let mut merged = Map::new();
            for name in names {
                let (live, applied) = (live.and_then(|m| m.get(name)), applied.and_then(|m| m.get(name)));
                if let Some(form) = form.child(name)
                    && let Some(value) = merge(&form, live, applied)
                {
                    merged.insert(name.clone(), value);
                }
            }
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
        Form::Set | Form::Keyed(..) => {
            let live = live.and_then(Value::as_array).filter(|list| !list.is_empty());
            let applied = applied.and_then(Value::as_array).filter(|list| !list.is_empty());
            if live.is_none() && applied.is_none() {
                return whole();
            }
            let empty = Vec::new();
            let merged = merge_lists(form, live.unwrap_or(&empty), applied.unwrap_or(&empty));
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
    }
}

/// The elements of both lists: the applied ones in their order, the others at their places between them.
fn merge_lists(form: &Form, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let below = form.child("").unwrap_or(Form::Leaf);
    let index = |list: &[Value]| -> Vec<(Element, Value)> {
        list.iter()
            .filter_map(|item| Some((form.element(item).ok()?, item.clone())))
            .collect()
    };
    let (live, applied) = (index(live), index(applied));
    let mut live_values: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (element, value) in &live {
        // Elements that occur more than once are replaced, not merged.
        let once = !live_values.contains_key(element);
        live_values.insert(element, once.then_some(value));
    }
    let applied_elements: BTreeSet<&Element> = applied.iter().map(|(element, _)| element).collect();
    let mut shared = applied
        .iter()
        .map(|(element, _)| element)
        .filter(|element| live_values.contains_key(element));
    let mut next_shared = shared.next();

    let mut merged = Vec::new();
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let (mut l, mut a) = (0, 0);
    while l < live.len() || a < applied.len() {
        if let Some((element, value)) = live.get(l) {
            if !applied_elements.contains(element) {
                merged.extend(merge(&below, Some(value), None));
                l += 1;
                continue;
            }
            let out_of_turn = a < applied.len() && next_shared.is_some_and(|next| next != element);
            if done.contains(element) || out_of_turn {
                l += 1;
                continue;
            }
        }
        if let Some((element, value)) = applied.get(a) {
            done.insert(element);
            let live = live_values.get(element).copied().flatten();
            merged.extend(merge(&below, live, Some(value)));
            a += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    merged
}
