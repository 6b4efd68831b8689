//! [`Journal`]: the changes that are not in the storage yet.
//!
//! A change is in memory at once, so that the next request can build on it. Watchers get it, and all requests that wrote or
//! saw it get their responses, once it is in the storage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::Store;
use super::change::Change;
use crate::resource::RESOURCES;

/// How far the revisions go ahead when a server starts on a storage. The server before may have shown revisions to
/// readers that are not in the storage; none of them is used again. The server writes the new revision before it serves.
const LEAP: u64 = 1_000_000;
/// The key of the revision in the storage. No resource has this name.
const REVISION: &str = "revision";

#[derive(Debug, Default)]
pub(super) struct Journal {
    waiting: Vec<(usize, Arc<Change>)>,
    /// The revision up to which the storage has all changes.
    delivered: u64,
}

impl Journal {
    pub(super) fn push(&mut self, kind: usize, change: Arc<Change>) {
        self.waiting.push((kind, change));
    }
}

/// Changes to write in one step.
#[derive(Debug)]
pub(crate) struct Batch {
    changes: Vec<(usize, Arc<Change>)>,
    /// The revision of the newest one.
    pub(crate) revision: u64,
}

impl Batch {
    /// The names of the entries that are objects.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        names(&self.changes)
    }

    /// The entries to write: the last state of each object, `None` for a removed one.
    pub(crate) fn entries(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        let mut entries = BTreeMap::new();
        for (kind, change) in &self.changes {
            let Some(name) = name(*kind, change) else {
                continue;
            };
            let object = change.new_object().map(|object| object.to_string().into_bytes());
            entries.insert(name, object);
        }
        entries.insert(REVISION.to_owned(), Some(self.revision.to_string().into_bytes()));
        entries
    }
}

fn names(changes: &[(usize, Arc<Change>)]) -> BTreeSet<String> {
    let names = changes.iter().filter_map(|(kind, change)| name(*kind, change));
    names.collect()
}

/// The name of the entry of a changed object.
fn name(kind: usize, change: &Change) -> Option<String> {
    let resource = RESOURCES.get(kind)?;
    Some(format!("{}/{}", resource.qualified(), change.key()))
}

/// What a store found in its storage.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Entries that are no objects of this server.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "the authority is one"))]
    pub(crate) others: BTreeMap<String, Vec<u8>>,
    pub(crate) objects: usize,
}

impl Store {
    /// Takes over what a storage has. Watches and lists from before get `410 Gone`. From now on, changes wait until
    /// they are [`written`](Self::written).
    ///
    /// # Errors
    ///
    /// The name of an entry that cannot be read.
    pub(crate) fn restore(&mut self, entries: Vec<(String, Vec<u8>)>) -> Result<Restored, String> {
        let mut restored = Restored::default();
        let is_new = entries.is_empty();
        for (name, value) in entries {
            if name == REVISION {
                let text = String::from_utf8(value).map_err(|_| name.clone())?;
                self.revision = self.revision.max(text.parse().map_err(|_| name)?);
                continue;
            }
            let found = RESOURCES.iter().enumerate().find_map(|(kind, resource)| {
                let key = name.strip_prefix(&resource.qualified())?.strip_prefix('/')?;
                Some((kind, key.to_owned()))
            });
            let Some((kind, key)) = found else {
                restored.others.insert(name, value);
                continue;
            };
            let object: Value = serde_json::from_slice(&value).map_err(|_| name.clone())?;
            let revision = object["metadata"]["resourceVersion"]
                .as_str()
                .and_then(|text| text.parse().ok());
            self.revision = self.revision.max(revision.ok_or(name)?);
            self.put(kind, key, object);
            restored.objects += 1;
        }
        if !is_new {
            self.revision += LEAP;
        }
        self.compact();
        self.journal = Some(Journal {
            waiting: Vec::new(),
            delivered: self.revision,
        });
        Ok(restored)
    }

    /// The entry of the revision.
    pub(crate) fn revision_entry(&self) -> (String, Option<Vec<u8>>) {
        (REVISION.to_owned(), Some(self.revision.to_string().into_bytes()))
    }

    /// The changes that wait for the storage, in order; `None` if there are none.
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        let changes = std::mem::take(&mut self.journal.as_mut()?.waiting);
        let revision = changes.last()?.1.revision;
        Some(Batch { changes, revision })
    }

    /// The names of the objects whose changes wait for the storage.
    pub(crate) fn waiting_names(&self) -> BTreeSet<String> {
        let journal = self.journal.as_ref();
        journal.map_or_else(BTreeSet::new, |journal| names(&journal.waiting))
    }

    /// Delivers changes to their watchers, now that the storage has them.
    pub(crate) fn written(&mut self, batch: &Batch) {
        for (kind, change) in &batch.changes {
            if let Some(kind) = self.kinds.get_mut(*kind) {
                kind.subscribers.notify(change);
            }
        }
        if let Some(journal) = &mut self.journal {
            journal.delivered = batch.revision;
        }
    }

    /// The revision up to which watchers have all changes.
    pub(crate) fn delivered(&self) -> u64 {
        self.journal
            .as_ref()
            .map_or(self.revision, |journal| journal.delivered)
    }
}
