//! The entries of `metadata.managedFields`.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::compare::Comparison;
use super::field_set::FieldSet;

/// `DefaultMaxUpdateManagers`: the maximum number of managers with an entry for updates.
const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager that gets the fields of the oldest managers when there are too many.
const ANCIENT_CHANGES: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The key of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) operation: Operation,
    pub(super) manager: String,
    /// Empty for an apply.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) fields: FieldSet,
    pub(super) time: Option<Timestamp>,
}

/// All entries of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Managed {
    pub(super) owners: BTreeMap<Id, Owner>,
}

impl Managed {
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Reads `metadata.managedFields`; `None` if anything in it cannot be read.
    pub(super) fn decode(entries: &Value) -> Option<Self> {
        let mut managed = Managed::default();
        for entry in entries.as_array().into_iter().flatten() {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_string();
            let operation = match entry["operation"].as_str()? {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() || entry["fieldsType"] != "FieldsV1" {
                return None;
            }
            let id = Id {
                operation,
                manager: text("manager"),
                api_version: match operation {
                    Operation::Update => api_version.clone(),
                    Operation::Apply => String::new(),
                },
                subresource: text("subresource"),
            };
            let fields = match &entry["fieldsV1"] {
                Value::Null => FieldSet::default(),
                fields => FieldSet::from_fields_v1(fields)?,
            };
            let time = entry["time"].as_str().and_then(|time| time.parse().ok());
            let owner = Owner {
                api_version,
                fields,
                time,
            };
            managed.owners.insert(id, owner);
        }
        Some(managed)
    }

    /// Writes `metadata.managedFields`; null for none.
    pub(super) fn encode(&self) -> Value {
        if self.is_empty() {
            return Value::Null;
        }
        let mut entries: Vec<(&Id, &Owner)> = self.owners.iter().collect();
        let order = |(id, owner): &(&Id, &Owner)| {
            let id: Id = (*id).clone();
            (
                id.operation,
                seconds(owner),
                id.manager,
                owner.api_version.clone(),
                id.subresource,
            )
        };
        entries.sort_by_key(order);
        entries.into_iter().map(entry).collect()
    }

    /// Removes the changed fields from all managers but one, and removes entries without fields.
    pub(super) fn take_away(&mut self, changes: &Comparison, except: Option<&Id>) {
        let changed = changes.modified.union(&changes.added).union(&changes.removed);
        for (id, owner) in &mut self.owners {
            if Some(id) != except {
                owner.fields = owner.fields.difference(&changed);
            }
        }
        self.owners.retain(|_, owner| !owner.fields.is_empty());
    }

    /// Merges the oldest update entries into one, if there are too many.
    pub(super) fn cap_updates(&mut self) {
        let mut updates: Vec<(i64, Id)> = self
            .owners
            .iter()
            .filter(|(id, _)| id.operation == Operation::Update)
            .map(|(id, owner)| (seconds(owner), id.clone()))
            .collect();
        let mut left = updates.len();
        updates.sort();
        let mut first_of_version: BTreeMap<String, Id> = BTreeMap::new();
        for (_, id) in updates {
            if left <= MAX_UPDATE_MANAGERS {
                return;
            }
            let bucket = Id {
                operation: Operation::Update,
                manager: ANCIENT_CHANGES.into(),
                api_version: id.api_version.clone(),
                subresource: String::new(),
            };
            let Some(first) = first_of_version.get(&id.api_version) else {
                first_of_version.insert(id.api_version.clone(), id);
                continue;
            };
            if !self.owners.contains_key(&bucket)
                && let Some(oldest) = self.owners.remove(first)
            {
                self.owners.insert(bucket.clone(), oldest);
            }
            if id == bucket {
                continue;
            }
            if let Some(owner) = self.owners.remove(&id)
                && let Some(ancient) = self.owners.get_mut(&bucket)
            {
                ancient.fields = ancient.fields.union(&owner.fields);
                ancient.time = owner.time;
                left -= 1;
            }
        }
    }
}

fn seconds(owner: &Owner) -> i64 {
    owner.time.map_or(0, Timestamp::as_second)
}

fn entry((id, owner): (&Id, &Owner)) -> Value {
    let mut entry = json!({
        "manager": id.manager,
        "operation": match id.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        },
        "apiVersion": owner.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": owner.fields.to_fields_v1(),
    });
    if let Some(time) = owner.time {
        entry["time"] = json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    }
    if !id.subresource.is_empty() {
        entry["subresource"] = json!(id.subresource);
    }
    entry
}
