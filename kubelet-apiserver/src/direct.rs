//! Access without HTTP, for the set-up and the assertions of tests.

use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use k8s_openapi::{Metadata, Resource as Kind};
use serde_json::{Value, json};

use super::call::Verb;
use super::objects::FieldValidation;
use super::request::{Attributes, User};
use super::resource::Resource;
use super::server::ApiServer;
use super::status_error::StatusError;
use super::store::{Event, EventType, Events, ListOptions, Selection};
use crate::Result;

/// Access without HTTP, with the administrator's rights. Faults do not apply, and calls are not recorded.
impl ApiServer {
    /// Returns an object, or `None` if it does not exist. `namespace` is empty for kinds without namespaces.
    ///
    /// # Errors
    ///
    /// The server does not serve the kind.
    pub fn get<K: Kind + DeserializeOwned>(&self, namespace: &str, name: &str) -> Result<Option<K>> {
        let object = self.shared.lookup(served::<K>()?, namespace, name);
        object.map(|object| typed(&object)).transpose()
    }

    /// Returns all objects of a kind, ordered by namespace and name.
    ///
    /// # Errors
    ///
    /// The server does not serve the kind.
    pub fn list<K: Kind + DeserializeOwned>(&self) -> Result<Vec<K>> {
        let resource = served::<K>()?;
        let objects = self.shared.with_store(|store| store.objects(resource, ""));
        objects.iter().map(|object| typed(object)).collect()
    }

    /// Creates an object, in its namespace or in `default`. Returns the stored object.
    ///
    /// # Errors
    ///
    /// The API server rejects the object.
    pub fn create<K>(&self, object: &K) -> Result<K>
    where
        K: Kind + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned,
    {
        let (attributes, body) = self.request(Verb::Create, object)?;
        let written = self.shared.create(&attributes, &body, FieldValidation::Strict);
        typed(&written?.object)
    }

    /// Replaces an object (`PUT`). If the kind has a `status` sub-resource, the status does not change.
    ///
    /// # Errors
    ///
    /// The object does not exist, it has changed since its `resourceVersion`, or the API server rejects it.
    pub fn replace<K>(&self, object: &K) -> Result<K>
    where
        K: Kind + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned,
    {
        let (attributes, body) = self.request(Verb::Update, object)?;
        let written = self.shared.update(&attributes, &body, FieldValidation::Strict);
        typed(&written?.object)
    }

    /// Replaces the status of an object (`PUT` on `status`).
    ///
    /// # Errors
    ///
    /// The object does not exist, it has changed since its `resourceVersion`, or the API server rejects it.
    pub fn replace_status<K>(&self, object: &K) -> Result<K>
    where
        K: Kind + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned,
    {
        let (mut attributes, body) = self.request(Verb::Update, object)?;
        attributes.subresource = "status";
        let written = self.shared.update(&attributes, &body, FieldValidation::Strict);
        typed(&written?.object)
    }

    /// Deletes an object with default options: a pod gets its grace period.
    ///
    /// # Errors
    ///
    /// The object does not exist.
    pub fn delete<K: Kind>(&self, namespace: &str, name: &str) -> Result<()> {
        let attributes = self.attributes(Verb::Delete, served::<K>()?, namespace, name);
        self.shared.delete(&attributes, &json!({}))?;
        Ok(())
    }

    /// Watches all objects of a kind, from a revision on. A watch from 0 starts with the existing objects. When the
    /// stream ends, call this again with the last revision that you saw.
    ///
    /// # Errors
    ///
    /// The server does not serve the kind, or has dropped this revision from its history.
    pub fn changes<K: Kind>(&self, since: u64) -> Result<Changes<K>> {
        let options = ListOptions {
            resource_version: since.to_string(),
            send_initial_events: Some(since == 0),
            allow_watch_bookmarks: true,
            ..ListOptions::default()
        };
        let resource = served::<K>()?;
        let watched = self
            .shared
            .with_store(|store| store.watch(resource, Selection::default(), &options));
        Ok(Changes(watched?.events, PhantomData))
    }

    fn request<K>(&self, verb: Verb, object: &K) -> Result<(Attributes, Vec<u8>)>
    where
        K: Kind + Metadata<Ty = ObjectMeta> + Serialize,
    {
        let (resource, metadata) = (served::<K>()?, object.metadata());
        let namespace = match metadata.namespace.as_deref() {
            _ if !resource.namespaced => "",
            Some(namespace) if !namespace.is_empty() => namespace,
            _ => "default",
        };
        let name = match verb {
            Verb::Create => "",
            _ => metadata.name.as_deref().unwrap_or_default(),
        };
        let body = serde_json::to_vec(object).map_err(|e| StatusError::bad_request(e.to_string()))?;
        Ok((self.attributes(verb, resource, namespace, name), body))
    }

    fn attributes(&self, verb: Verb, resource: &'static Resource, namespace: &str, name: &str) -> Attributes {
        Attributes {
            user: User::admin(),
            verb: verb.as_str(),
            resource,
            subresource: "",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            field_selector: String::new(),
            field_manager: "kubelet-apiserver".into(),
            dry_run: false,
            now: self.shared.now(),
        }
    }
}

/// The changes of all objects of a kind, from [`ApiServer::changes`].
pub struct Changes<K>(Events, PhantomData<fn() -> K>);

/// A change. Call [`ApiServer::changes`] with its revision to continue from there.
pub enum Change<K> {
    /// The object existed when the watch started.
    Found(K),
    /// All existing objects have been delivered. This is their revision.
    FoundAll(u64),
    /// The object was created or changed.
    Changed(u64, K),
    /// The object was deleted. This is its last state.
    Gone(u64, K),
}

impl<K: DeserializeOwned> Changes<K> {
    /// Returns the next change, or `None` when the watch has ended. It skips an object that cannot be decoded as `K`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no change is lost.
    pub async fn next(&mut self) -> Option<Change<K>> {
        loop {
            let change = match self.0.next().await? {
                Event::Initial(object) => typed(&object).map(Change::Found),
                Event::InitialEnd(revision) => Ok(Change::FoundAll(revision)),
                Event::Change(change, event) => {
                    let gone = event == EventType::Deleted;
                    typed(change.shown(event)).map(|object| match gone {
                        true => Change::Gone(change.revision, object),
                        false => Change::Changed(change.revision, object),
                    })
                }
            };
            if let Ok(change) = change {
                return Some(change);
            }
        }
    }
}

fn served<K: Kind>() -> Result<&'static Resource> {
    let found = Resource::find(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT);
    found.ok_or_else(|| {
        let message = format!("{} {} is not served", K::API_VERSION, K::KIND);
        StatusError::new(404, "NotFound", message).into()
    })
}

fn typed<K: DeserializeOwned>(object: &Value) -> Result<K> {
    K::deserialize(object).map_err(|e| StatusError::new(500, "InternalError", e.to_string()).into())
}
