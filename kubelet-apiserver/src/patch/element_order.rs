//! The order of a list's elements after a strategic merge patch.
//!
//! Elements in the patch come in the patch's order, elements only on the server in the server's order. In the merged
//! list, an element of the server goes before the first element of the patch that followed it on the server.

use serde_json::Value;

use super::super::status_error::StatusError;
use super::go::{go_interface, go_print};
use super::{DIRECTIVE, internal, unprocessable};

/// The type of a list's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elements {
    Scalars,
    Objects,
}

impl Elements {
    /// The common type of all the lists.
    ///
    /// # Errors
    ///
    /// 422 for a list of lists, 500 for elements of different types and for no elements.
    pub(super) fn of(lists: &[Option<&[Value]>]) -> Result<Self, StatusError> {
        let lists = || lists.iter().flatten().copied();
        let mut items = lists().flatten();
        let Some(first) = items.next() else {
            return Err(internal("no elements in any of the given slices"));
        };
        if first.is_array() {
            return Err(unprocessable());
        }
        if first.is_null() || items.any(|item| go_interface(item) != go_interface(first)) {
            let all: Vec<String> = lists()
                .map(|list| go_print(&Value::Array(list.to_vec())))
                .collect();
            return Err(internal(format!(
                "list element types are not identical: [{}]",
                all.join(" ")
            )));
        }
        Ok(if first.is_object() {
            Elements::Objects
        } else {
            Elements::Scalars
        })
    }
}

/// Rejects a patch list with elements that are missing in the order or in another order.
pub(super) fn check(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), StatusError> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut order_left = order.iter().peekable();
    for item in patch {
        let directive = item.get(DIRECTIVE);
        if key.is_some() && directive.is_some_and(|d| d == "delete") {
            continue;
        }
        if directive.is_some() && order_left.peek().is_some() {
            continue;
        }
        let found = loop {
            match order_left.next() {
                None => break false,
                Some(next) if same(item, next, key)? => break true,
                Some(_) => {}
            }
        };
        if !found {
            return Err(internal(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                go_print(&Value::Array(patch.to_vec())),
                go_print(&Value::Array(order.to_vec()))
            )));
        }
    }
    Ok(())
}

fn same(left: &Value, right: &Value, key: Option<&str>) -> Result<bool, StatusError> {
    match key {
        None => Ok(left == right),
        Some(key) => Ok(merge_value(left, key)? == merge_value(right, key)?),
    }
}

/// Orders merged elements: by `patch_order` for those that are in it, by `server_order` for the others.
pub(super) fn arrange(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    elements: Elements,
    key: Option<&str>,
) -> Result<Vec<Value>, StatusError> {
    let (mut patch_items, mut server_items) = (Vec::new(), Vec::new());
    for item in merged {
        let in_patch = match key {
            None => patch_order.contains(&item),
            Some(key) => {
                let value = merge_value(&item, key)?;
                position(patch_order, key, value)?.is_some()
            }
        };
        if in_patch {
            patch_items.push(item);
        } else {
            server_items.push(item);
        }
    }
    if elements == Elements::Objects {
        for list in [&patch_items[..], patch_order, &server_items, server_order] {
            for item in list {
                merge_value(item, key.unwrap_or_default())?;
            }
        }
    }
    let identity = match elements {
        Elements::Objects => key,
        Elements::Scalars => None,
    };
    let index = |order: &[Value], item: &Value| {
        order.iter().position(|other| match identity {
            Some(key) => other.get(key) == item.get(key),
            None => other == item,
        })
    };
    let patch_items = sorted(patch_items, |item| index(patch_order, item));
    let server_items = sorted(server_items, |item| index(server_order, item));
    Ok(weave(server_items, patch_items, |item| index(server_order, item)))
}

/// The index of the element with this key.
pub(super) fn position(list: &[Value], key: &str, value: &Value) -> Result<Option<usize>, StatusError> {
    for (i, item) in list.iter().enumerate() {
        let Some(item) = item.as_object() else {
            return Err(internal(format!("value for key {i} is not a map")));
        };
        if item.get(key) == Some(value) {
            return Ok(Some(i));
        }
    }
    Ok(None)
}

/// The merge key of an element.
pub(super) fn merge_value<'a>(item: &'a Value, key: &str) -> Result<&'a Value, StatusError> {
    let Some(object) = item.as_object() else {
        return Err(internal(format!(
            "expected a map[string]interface {{}}, but received a {}",
            go_interface(item)
        )));
    };
    object.get(key).ok_or_else(|| {
        internal(format!(
            "map: {} does not contain declared merge key: {key}",
            go_print(item)
        ))
    })
}

/// Sorts by the index. An element without an index compares as less than any other. So, as in the API server, new
/// elements come out in reverse.
fn sorted(items: Vec<Value>, index: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let mut sorted: Vec<(Option<usize>, Value)> = Vec::with_capacity(items.len());
    for item in items {
        let at = index(&item);
        let less = |other: Option<usize>| match (at, other) {
            (Some(at), Some(other)) => at < other,
            _ => true,
        };
        let place = sorted
            .iter()
            .rposition(|(other, _)| !less(*other))
            .map_or(0, |i| i + 1);
        sorted.insert(place, (at, item));
    }
    sorted.into_iter().map(|(_, item)| item).collect()
}

/// Merges the elements that are only on the server into those of the patch.
fn weave(server: Vec<Value>, patch: Vec<Value>, index: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let mut woven = Vec::with_capacity(server.len() + patch.len());
    let mut server = server.into_iter().peekable();
    for item in patch {
        let at = index(&item);
        while let Some(first) = server.next_if(|s| matches!((index(s), at), (Some(s), Some(at)) if s < at)) {
            woven.push(first);
        }
        woven.push(item);
    }
    woven.extend(server);
    woven
}

/// The order on the server as a `$setElementOrder` sees it.
///
/// The API server deletes and appends in place, in the list that it then reads the order from. So an appended element
/// takes the place that a deletion left free at the end, and counts as one of the server's. Otherwise a new element
/// would go before the server's own ones.
pub(super) struct ServerOrder {
    memory: Vec<Value>,
    len: usize,
}

impl ServerOrder {
    pub(super) fn new(live: &[Value]) -> Self {
        ServerOrder {
            memory: live.to_vec(),
            len: live.len(),
        }
    }

    pub(super) fn remove(&mut self, at: usize) {
        for i in at + 1..self.len {
            self.memory[i - 1] = self.memory[i].clone();
        }
        self.len -= 1;
    }

    pub(super) fn push(&mut self, item: &Value) {
        if let Some(free) = self.memory.get_mut(self.len) {
            *free = item.clone();
            self.len += 1;
        }
    }
}

impl From<ServerOrder> for Vec<Value> {
    fn from(order: ServerOrder) -> Self {
        order.memory
    }
}
