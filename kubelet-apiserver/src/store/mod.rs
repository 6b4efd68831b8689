//! [`Store`]: the objects, their history and their watches.
//!
//! One revision counts all writes. Each resource keeps its objects in the order of their keys, and its latest
//! changes. A watch starts from these changes. A list at an older revision takes the current objects and reverts the
//! changes since.

mod change;
mod field_selector;
mod journal;
mod label_selector;
mod list_options;
mod page_token;
mod selection;
mod subscription;
mod twins;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Value, json};

pub(crate) use change::{Change, EventType, line};
pub(crate) use field_selector::FieldSelector;
pub(crate) use journal::Batch;
pub(crate) use label_selector::LabelSelector;
pub(crate) use list_options::{ListOptions, Listed, parse_revision};
pub(crate) use selection::Selection;
pub(crate) use subscription::{Ending, Event, Events};

pub(crate) use twins::{is_twin, shown};

use super::resource::{RESOURCES, Resource};
use journal::Journal;
use subscription::Subscribers;

/// The error of [`Store::commit`] if the object has changed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raced;

/// All stored objects.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    kinds: Vec<Kind>,
    history_limit: usize,
    /// The changes that are not in the storage yet; `None` without a storage.
    journal: Option<Journal>,
}

/// The objects and changes of one resource.
#[derive(Debug, Default)]
struct Kind {
    objects: BTreeMap<String, Arc<Value>>,
    /// Keys of pods by `spec.nodeName`.
    by_node: BTreeMap<String, BTreeSet<String>>,
    history: VecDeque<Arc<Change>>,
    /// The newest revision whose changes may be lost.
    compacted: u64,
    subscribers: Subscribers,
}

impl Store {
    /// An empty store that keeps this many changes of each resource.
    pub(crate) fn new(history_limit: usize) -> Self {
        Store {
            revision: 1,
            kinds: RESOURCES.iter().map(|_| Kind::default()).collect(),
            history_limit,
            journal: None,
        }
    }

    /// The revision of the latest write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let object = self
            .kind(resource)?
            .objects
            .get(&key(resource, namespace, name))?;
        Some(shown(resource, object))
    }

    /// All objects of a resource, in one namespace or (if empty) in all, in the order of their keys.
    pub(crate) fn objects(&self, resource: &Resource, namespace: &str) -> Vec<Arc<Value>> {
        let Some(kind) = self.kind(resource) else {
            return Vec::new();
        };
        let range = key_range(resource, namespace, None);
        kind.objects
            .range::<str, _>(as_bounds(&range))
            .map(|(_, object)| shown(resource, object))
            .collect()
    }

    /// Replaces `old` with `new`. `old` is the object as read before, or `None` to create one; `new` is `None` to
    /// remove it. Returns the stored object, or the last state of a removed one.
    ///
    /// # Errors
    ///
    /// [`Raced`] if `old` is no longer the stored object.
    pub(crate) fn commit(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        old: Option<&Arc<Value>>,
        new: Option<Value>,
    ) -> Result<Arc<Value>, Raced> {
        let Some(index) = index(resource) else {
            return Err(Raced);
        };
        let (revision, history_limit) = (self.revision + 1, self.history_limit);
        let kind = &mut self.kinds[index];
        let key = key(resource, namespace, name);
        let stored = kind.objects.get(&key);
        let unchanged = match (stored, old) {
            (None, None) => new.is_some(),
            (Some(stored), Some(old)) => {
                stored["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]
            }
            _ => false,
        };
        if !unchanged {
            return Err(Raced);
        }
        let old = stored.cloned();
        let new = new.map(|object| Arc::new(at_revision(twins::to_store(resource, object), revision)));
        if let Some(node) = old.as_deref().and_then(node_name)
            && let Some(keys) = kind.by_node.get_mut(node)
        {
            keys.remove(&key);
            if keys.is_empty() {
                kind.by_node.remove(node);
            }
        }
        if let Some(node) = new.as_deref().and_then(node_name) {
            kind.by_node
                .entry(node.to_owned())
                .or_default()
                .insert(key.clone());
        }
        match &new {
            Some(object) => kind.objects.insert(key.clone(), object.clone()),
            None => kind.objects.remove(&key),
        };
        let change = Arc::new(Change::new(revision, key, old, new));
        kind.history.push_back(change.clone());
        while kind.history.len() > history_limit {
            if let Some(lost) = kind.history.pop_front() {
                kind.compacted = lost.revision;
            }
        }
        match &mut self.journal {
            Some(journal) => journal.push(index, change.clone()),
            None => kind.subscribers.notify(&change),
        }
        self.revision = revision;
        Ok(shown(resource, change.object()))
    }

    /// Puts an object that was stored before, with its revision.
    fn put(&mut self, kind: usize, key: String, object: Value) {
        let Some(kind) = self.kinds.get_mut(kind) else {
            return;
        };
        if let Some(node) = node_name(&object) {
            kind.by_node
                .entry(node.to_owned())
                .or_default()
                .insert(key.clone());
        }
        kind.objects.insert(key, Arc::new(object));
    }

    /// Drops all changes. A list or watch from an earlier revision then gets `410 Gone`.
    pub(crate) fn compact(&mut self) {
        for kind in &mut self.kinds {
            kind.history.clear();
            kind.compacted = self.revision;
        }
    }

    /// Ends all open watches.
    pub(crate) fn end_watches(&mut self, ending: Ending) {
        for kind in &mut self.kinds {
            kind.subscribers.end(ending);
        }
    }

    /// The number of open watches.
    pub(crate) fn watches(&self) -> usize {
        self.kinds.iter().map(|kind| kind.subscribers.count()).sum()
    }

    fn kind(&self, resource: &Resource) -> Option<&Kind> {
        self.kinds.get(index(resource)?)
    }
}

impl Kind {
    /// The objects with keys in `range`, at a revision that is still kept.
    fn at(&self, range: &(Bound<String>, Bound<String>), revision: u64) -> BTreeMap<&str, &Arc<Value>> {
        let mut objects: BTreeMap<&str, &Arc<Value>> = self
            .objects
            .range::<str, _>(as_bounds(range))
            .map(|(key, object)| (key.as_str(), object))
            .collect();
        for change in self.history.iter().rev().take_while(|c| c.revision > revision) {
            if !std::ops::RangeBounds::<str>::contains(&as_bounds(range), change.key.as_str()) {
                continue;
            }
            match &change.old {
                Some(old) => objects.insert(&change.key, old),
                None => objects.remove(change.key.as_str()),
            };
        }
        objects
    }
}

fn index(resource: &Resource) -> Option<usize> {
    let resource = twins::stored(resource);
    RESOURCES
        .iter()
        .position(|r| r.plural == resource.plural && r.group == resource.group)
}

/// The API server's key of an object: `namespace/name`.
fn key(resource: &Resource, namespace: &str, name: &str) -> String {
    if resource.namespaced {
        format!("{namespace}/{name}")
    } else {
        name.to_owned()
    }
}

/// The keys of one namespace, or (empty) of all, from `start` on.
fn key_range(resource: &Resource, namespace: &str, start: Option<String>) -> (Bound<String>, Bound<String>) {
    if namespace.is_empty() || !resource.namespaced {
        return (start.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded);
    }
    let start = start.unwrap_or_else(|| format!("{namespace}/"));
    // `0` is what comes after `/`.
    (Bound::Included(start), Bound::Excluded(format!("{namespace}0")))
}

fn as_bounds(range: &(Bound<String>, Bound<String>)) -> (Bound<&str>, Bound<&str>) {
    (
        range.0.as_ref().map(String::as_str),
        range.1.as_ref().map(String::as_str),
    )
}

/// The node that an object is bound to, if any.
fn node_name(object: &Value) -> Option<&str> {
    object
        .get("spec")?
        .get("nodeName")?
        .as_str()
        .filter(|node| !node.is_empty())
}

/// An object with its `resourceVersion`.
fn at_revision(mut object: Value, revision: u64) -> Value {
    if let Some(object) = object.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".into(), json!(revision.to_string()));
        }
    }
    object
}
