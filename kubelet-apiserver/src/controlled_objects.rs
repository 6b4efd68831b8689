//! How the controllers of claims and of storage list and write objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::objects::{self, Fields};
use super::resource::Resource;
use super::schema;
use super::server::Shared;
use super::write::name_of;

/// The controllers of one kind of objects. Each file of them adds its own methods.
pub(crate) struct Controllers<'a> {
    pub(crate) server: &'a Shared,
    pub(crate) rng: &'a mut fastrand::Rng,
}

impl Controllers<'_> {
    /// All objects of a resource in version `v1`, of all namespaces.
    pub(crate) fn list(&self, group: &str, plural: &str) -> Vec<Arc<Value>> {
        let resource = Resource::find(group, "v1", plural);
        resource
            .map(|resource| self.server.with_store(|store| store.objects(resource, "")))
            .unwrap_or_default()
    }

    /// Creates, replaces or removes an object. If another request was faster, that request runs the controllers again.
    pub(crate) fn write(&mut self, group: &str, plural: &str, old: Option<&Arc<Value>>, new: Option<Value>) {
        let Some(resource) = Resource::find(group, "v1", plural) else {
            return;
        };
        let new = new.map(|mut new| {
            if old.is_none() {
                new["kind"] = json!(resource.kind);
                new["apiVersion"] = json!(resource.api_version());
                new["metadata"]["uid"] = json!(objects::new_uid(self.rng));
                new["metadata"]["creationTimestamp"] = json!(self.now());
            }
            schema::normalize(resource, &mut new);
            new
        });
        if let (Some(old), Some(new)) = (old, &new)
            && **old == *new
        {
            return;
        }
        let Some(object) = new.as_ref().or(old.map(|old| &**old)) else {
            return;
        };
        let namespace = object["metadata"].text("namespace").to_owned();
        let name = name_of(object).to_owned();
        let _ = self.server.commit(resource, &namespace, &name, old, new);
    }

    /// The time as it stands in objects.
    pub(crate) fn now(&self) -> String {
        objects::time(self.server.now())
    }
}
